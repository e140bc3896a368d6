//! Generated templates and rule files, as a client sends them with a backtest.

use std::cell::RefCell;
use std::collections::BTreeMap;

use varve_model::Labels;
use varve_query::{Engine, Error, Point, Request, Steps, Value, VectorSample};
use varve_rules::file;
use varve_template::{Environment, Template};
use varve_tsdb::{Db, ReadContext};

use crate::random::Random;
use crate::requests::wide_regex;
use crate::store::END_MS;

/// Bytes that the server charges per byte of a rule file before it reads the file.
const TEXT_MEMORY: usize = 128;

/// Expands a template as an evaluation of a rule does.
pub(crate) fn expand(db: &Db, engine: &Engine, ctx: &ReadContext, text: &str) -> Result<(), Error> {
    let mut charge = ctx.charge();
    charge.grow(text.len() * TEXT_MEMORY)?;
    // A backtest keeps the results of all queries.
    let charges = RefCell::new(Vec::new());
    let query = |expr: &str| {
        let request = Request::new(expr, Steps::instant(END_MS));
        let result = engine.run(db, ctx, &request);
        let result = result.map_err(|error| error.to_string())?;
        charges.borrow_mut().push(result.charge);
        match result.value {
            Value::Vector(samples) => Ok(samples),
            _ => Err("the result is not a vector".to_owned()),
        }
    };
    let environment = Environment {
        ctx,
        timestamp_ms: END_MS,
        external_labels: &BTreeMap::new(),
        external_url: "http://varve",
        query: &query,
    };
    let long = "x".repeat(10_000);
    let sample = VectorSample {
        labels: Labels::from_pairs([("i", "1"), ("long", &long)]).unwrap(),
        point: Point {
            timestamp_ms: END_MS,
            value: 1.5,
        },
        histogram: None,
    };
    match Template::new("A", text).expand(&environment, &sample) {
        Ok(text) | Err(text) => drop(text),
    }
    Ok(())
}

/// Reads a rule file as the server does.
pub(crate) fn read_rule_file(ctx: &ReadContext, text: &str) -> Result<(), Error> {
    let mut charge = ctx.charge();
    charge.grow(text.len() * TEXT_MEMORY)?;
    let options = file::Options {
        request: Some((**ctx).clone()),
        ..file::Options::default()
    };
    drop(file::parse(text, &options));
    Ok(())
}

/// Calls with a long text `$x`.
const CALLS: &[&str] = &[
    "match \"x.*y\" $x",
    "match \"[a-z]+(x|y)*$\" $x",
    "reReplaceAll \"[ab]+\" \"$0$0\" $x",
    "reReplaceAll \"\" \"y\" $x",
    "reReplaceAll $x \"\" $x",
    "printf \"%q %x % X\" $x $x $x",
    "printf \"%1000000d\" 1",
    "printf \"%*d\" 100000 1",
    "printf $x $x $x",
    "print $x $x",
    "println $x $x",
    "html $x",
    "js $x",
    "urlquery $x",
    "title $x",
    "toUpper $x",
    "args $x $x",
    "len $x",
    "eq $x $x",
    "slice $x 1",
    "query $x",
    "query \"m\"",
    "sortByLabel \"i\" (query \"m\")",
    "query \"{__name__=~\\\".+\\\"}\" | printf \"%q\"",
];

/// Returns a template that tries to use much memory or time with few bytes.
pub(crate) fn template(random: &mut Random) -> String {
    let n = random.size(20_000);
    let width = random.size(1_000_000);
    let call = random.pick(CALLS);
    let long = format!("{{{{ $x := printf \"%{width}d\" 1 }}}}");
    let regexes = [wide_regex(random), wide_regex(random)];
    match random.below(12) {
        0 => format!("{{{{ range {n} }}}}x{{{{ . }}}}{{{{ end }}}}"),
        1 => format!(
            "{{{{ $x := args 1 2 }}}}{{{{ range {n} }}}}{{{{ $x = args $x $x }}}}{{{{ end }}}}{{{{ $x }}}}"
        ),
        2 => format!(
            "{{{{ $x := args 1 2 }}}}{{{{ range 100 }}}}{{{{ $x = args $x $x }}}}{{{{ end }}}}{{{{ {call} }}}}"
        ),
        3 => format!("{long}{{{{ len (print{}) }}}}", " $x".repeat(n)),
        4 => format!("{long}{{{{ printf \"%v\"{} }}}}", " $x".repeat(n)),
        5 => format!("{{{{ printf \"{}\" 1 }}}}", format!("%{width}d").repeat(n)),
        6 => format!("{{{{ match \"{}\" .Labels.long }}}}", regexes[0]),
        7 => format!(
            "{long}{{{{ reReplaceAll \"{}\" \"{}\" $x }}}}",
            regexes[0], regexes[1]
        ),
        8 => "{{ range query \"m\" }}{{ .Labels }}{{ .Value }}{{ end }}".repeat(1 + n / 1000),
        9 => "{{ define \"t\" }}{{ template \"t\" . }}{{ end }}{{ template \"t\" . }}".to_owned(),
        10 => format!("{{{{ if 1 }}}}{}", "{{ . }}".repeat(n)),
        _ => format!("{long}{{{{ range {n} }}}}{{{{ $y := {call} }}}}{{{{ end }}}}"),
    }
}

/// Returns a rule file that tries to use much memory or time with few bytes.
pub(crate) fn rule_file(random: &mut Random) -> String {
    let n = random.size(5_000);
    let body = match random.below(14) {
        0 => return "{a: ".repeat(n),
        1 => return "[".repeat(n) + &"b,".repeat(n),
        2 => return "- ".repeat(n),
        3 => return "%TAG !a! x\n".repeat(n) + "--- a\n",
        4 => return "--- {groups: [{x: y}]}\n".repeat(n),
        5 => return "{kind: PrometheusRule, spec: {groups: [{x: y}]}}\n---\n".repeat(n / 10),
        6 => return format!("a: &a {}\nb: [{}]\n", "x".repeat(n), "*a,".repeat(n)),
        7 => {
            let inner = format!(
                "groups: []\n    a: &a {}\n    b: [{}]",
                "x".repeat(n),
                "*a,".repeat(n)
            );
            return format!("kind: ConfigMap\ndata:\n  f: |\n    {inner}\n");
        }
        8 => "{expr: up, record: a, x: y}, ".repeat(n),
        9 => "{expr: 'sum(', alert: A, for: z, labels: {l: '{{ up'}}, ".repeat(n),
        10 => format!("{{expr: up, record: a, {}}}", "x: y, ".repeat(n)),
        11 => "{expr: up, alert: A, annotations: {a: '{{ $labels.x }}'}}, ".repeat(n),
        12 => format!("{{expr: '{}up', record: a}}", "-".repeat(n)),
        _ => format!(
            "{{expr: up, record: a, labels: {{{}}}}}",
            "[]: y, ".repeat(n)
        ),
    };
    format!("groups: [{{name: g, rules: [{body}]}}]")
}
