use std::time::Duration;

use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_promql::quote::unquote;
use varve_query::Point;

use super::*;

#[test]
fn the_listed_functions_exist() {
    assert!(FUNCTIONS.is_sorted());
    for name in FUNCTIONS {
        assert!(functions::signature(name).is_some(), "{name}");
    }
}

fn sample(labels: &[(&str, &str)], value: f64) -> VectorSample {
    let labels = Labels::from_pairs(labels.iter().copied()).unwrap();
    VectorSample {
        labels,
        point: Point {
            timestamp_ms: 60_000,
            value,
        },
        histogram: None,
    }
}

/// The series `q` of the cases.
fn query(expr: &str) -> Result<Vec<VectorSample>, String> {
    let [a, b] =
        [("a", 1.5), ("b", 2.0)].map(|(l, value)| sample(&[("__name__", "q"), ("l", l)], value));
    match expr {
        "q" | "sort_desc(q)" => Ok(vec![b, a]),
        "sort(q)" => Ok(vec![a, b]),
        "nothing" => Ok(Vec::new()),
        _ => Err("1:2: parse error: unclosed left parenthesis".to_owned()),
    }
}

fn expand_within(ctx: &QueryContext, text: &str) -> Result<String, String> {
    let environment = Environment {
        ctx,
        timestamp_ms: 60_000,
        external_labels: &[("region", "eu"), ("zone", "z1")]
            .map(|(name, text)| (name.into(), text.into()))
            .into(),
        external_url: "https://prom.example.com/path/x",
        query: &query,
    };
    let instance = ("instance", "node-1.example.com:9100");
    let labels = [
        ("__name__", "m"),
        instance,
        ("job", "a b"),
        ("num", "12345.678"),
    ];
    Template::new("A", text).expand(&environment, &sample(&labels, 1_234_567.891))
}

fn expand(text: &str) -> Result<String, String> {
    expand_within(&QueryContext::unbounded(), text)
}

/// The expected texts are those of promtool 3.16.
#[test]
fn templates_expand_as_in_prometheus() {
    let mut wrong = Vec::new();
    for case in include_str!("cases.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (text, expect) = case.rsplit_once(" => ").unwrap();
        let (found, expect) = match unquote(expect).filter(|_| expect.starts_with('"')) {
            Some(expect) => {
                let found = expand(text).unwrap_or_else(|error| error_text(&error));
                (found, String::from_utf8(expect).unwrap())
            }
            None => (
                Template::new("A", text)
                    .parse_error()
                    .unwrap_or_default()
                    .to_owned(),
                expect.to_owned(),
            ),
        };
        if found != expect {
            wrong.push(format!("{text}\n  found  {found}\n  expect {expect}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_path_of_the_external_url_is_available() {
    assert_eq!(
        expand("{{ pathPrefix }} {{ externalURL }}").unwrap(),
        "/path/x https://prom.example.com/path/x"
    );
}

#[test]
fn a_text_that_does_not_parse_fails_when_it_is_expanded() {
    let error = expand("{{ up").unwrap_err();
    assert_eq!(
        error,
        "error parsing template __alert_A: template: __alert_A:1: function \"up\" not defined"
    );
}

#[test]
fn every_limit_ends_the_execution() {
    let check = |text: &str, expect: &str| {
        let error = expand(text).unwrap_err();
        assert!(error.ends_with(expect), "{error}");
    };
    check("{{ range 10000000 }}{{ end }}", "more than 1000000 steps");
    check(
        "{{ range 10000000 }}xxxxxxxxxx{{ end }}",
        "output of more than 1048576 bytes",
    );
    let doubling = "{{ $x := \"0123456789\" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}";
    check(doubling, "values of more than 16777216 bytes");
    check(
        "{{ printf \"%1000000d%1000000d\" 1 2 | len }}{{ range 20 }}{{ $y := printf \"%1000000d\" . }}{{ end }}",
        "bytes",
    );
    check(
        "{{ define \"t\" }}{{ template \"t\" }}{{ end }}{{ template \"t\" }}",
        "exceeded maximum template depth (400)",
    );
    check(
        "{{ reReplaceAll \"\" (printf \"%1000000d\" 1) (printf \"%1000000d\" 1) }}",
        "16777216",
    );
    let actions = "{{ if 1 }}".repeat(101) + &"{{ end }}".repeat(101);
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(100), ")".repeat(100));
    for text in [actions, parens] {
        let error = "template: __alert_A:1: more than 100 nested actions and parentheses";
        assert_eq!(Template::new("A", &text).parse_error(), Some(error));
    }
}

/// Values that share their parts printed to 2^60 bytes, deep ones overflowed the stack when they
/// were dropped, and `print` of one long text many times took any amount of memory.
#[test]
fn values_within_each_other_are_bounded() {
    let nested = |depth: usize, args: &str| {
        format!(
            "{{{{ $x := args 1 }}}}{{{{ range {depth} }}}}{{{{ $x = args {args} }}}}{{{{ end }}}}"
        )
    };
    let check = |text: &str, expect: &str| {
        let error = expand(text).unwrap_err();
        assert!(error.ends_with(expect), "{error}");
    };
    check(&nested(400, "$x"), "more than 400 args within each other");
    let shared = nested(100, "$x $x");
    check(
        &format!("{shared}{{{{ $x }}}}"),
        "output of more than 1048576 bytes",
    );
    check(
        &format!("{shared}{{{{ len (print $x) }}}}"),
        "values of more than 16777216 bytes",
    );
    for function in ["print", "println", "html", "printf \"%v\""] {
        let many = " $x".repeat(10_000);
        check(
            &format!("{{{{ $x := printf \"%1000000d\" 1 }}}}{{{{ len ({function}{many}) }}}}"),
            "values of more than 16777216 bytes",
        );
    }
    assert_eq!(
        expand("{{ printf \"%# X|% x|%#x\" \"ab\" \"ab\" \"ab\" }}").unwrap(),
        "0X61 0X62|61 62|0x6162"
    );
}

/// An error was as long as the value that it quotes, and became an annotation.
#[test]
fn a_long_error_is_cut() {
    let text = "{{ range (printf \"%1000000d\" 1) }}{{ end }}";
    assert_eq!(expand(text).unwrap_err().len(), ERROR_SIZE_MAX);
}

/// A call that read a megabyte counted as one step, so a template could take minutes.
#[test]
fn long_texts_count_as_steps() {
    for call in [
        "match \"x.*y\" $x",
        "reReplaceAll \"[ab]+z\" \"\" $x",
        "printf \"%1000000d\" 1",
        "toUpper $x",
        "html $x | len",
    ] {
        let text = format!(
            "{{{{ $x := printf \"%1000000d\" 1 }}}}{{{{ range 400 }}}}{{{{ $y := {call} }}}}{{{{ end }}}}"
        );
        let error = expand(&text).unwrap_err();
        let ends = error.ends_with("more than 1000000 steps")
            || error.ends_with("values of more than 16777216 bytes");
        assert!(ends, "{call}: {error}");
    }
}

/// A call counted as two steps, and printing its value as another one.
#[test]
fn a_call_is_one_step() {
    // Of the iteration, the action and the call.
    let steps = |n: usize| {
        expand(&format!(
            "{{{{ range {n} }}}}{{{{ $x := len \"a\" }}}}{{{{ end }}}}"
        ))
    };
    assert_eq!(steps(333_000).unwrap(), "");
    let error = steps(334_000).unwrap_err();
    assert!(error.ends_with("more than 1000000 steps"), "{error}");
}

#[test]
fn values_and_output_are_charged() {
    let memory = MemoryBudget::new(Limit::Other("query memory"), 2 << 20);
    let ctx = QueryContext::new(Duration::MAX, memory.clone());
    for text in [
        "{{ range 20 }}{{ $x := printf \"%100000d\" 1 }}{{ end }}",
        "{{ printf \"%1000000d\" 1 }}",
        "{{ len (query \"q\" | printf \"%1000000v\") }}",
    ] {
        let error = expand_within(&ctx, text).unwrap_err();
        assert!(error.contains("exceeds the limit of 2097152"), "{error}");
        assert_eq!(memory.used(), 0);
    }
    expand_within(&ctx, "{{ printf \"%10000d\" 1 }}").unwrap();
    assert!(memory.peak() > 10_000);
}

#[test]
fn a_deadline_ends_the_execution() {
    let ctx = QueryContext::new(
        Duration::ZERO,
        MemoryBudget::new(Limit::Other("query memory"), 1 << 20),
    );
    let error = expand_within(&ctx, "{{ range 100000 }}{{ end }}").unwrap_err();
    assert!(
        error.ends_with(&ctx.check().unwrap_err().to_string()),
        "{error}"
    );
}
