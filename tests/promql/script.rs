//! The parser of test scripts, in the language of Prometheus' `promqltest`.

use std::collections::BTreeMap;

use varve_model::Labels;
use varve_promql::ast::{Expr, ExprKind};
use varve_promql::{Features, parse, parse_description};
use varve_query::Steps;
use varve_rules::unit_test::sequence::{self, Sequence};

use super::histogram;

/// A command and the number of its first line.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) kind: CommandKind,
}

#[derive(Debug)]
pub(super) enum CommandKind {
    /// Drop all data.
    Clear,
    Load(Load),
    Eval(Box<Eval>),
}

/// Samples to store.
#[derive(Debug)]
pub(super) struct Load {
    /// Interval between samples; the first one is at 0.
    pub(super) step_ms: i64,
    pub(super) series: Vec<(Labels, Sequence)>,
    /// Start timestamps of the samples of series, relative to their timestamps.
    pub(super) starts_ms: BTreeMap<Labels, Vec<Option<i64>>>,
}

/// A query and its expected result.
#[derive(Debug)]
pub(super) struct Eval {
    pub(super) query: String,
    pub(super) expr: Expr,
    pub(super) times: Steps,
    pub(super) fail: Option<Text>,
    pub(super) warnings: Notes,
    pub(super) infos: Notes,
    /// The order of the series is checked.
    pub(super) ordered: bool,
    pub(super) expected: Expected,
}

/// The expected text of an error or annotation.
#[derive(Debug, Clone)]
pub(super) enum Text {
    Any,
    Equal(String),
    Matching(String),
}

/// The expected annotations of one kind.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) none: bool,
    pub(super) texts: Vec<Text>,
    /// At least one annotation is expected, with any text: the form `eval_warn`.
    pub(super) at_least_one: bool,
}

#[derive(Debug)]
pub(super) enum Expected {
    Scalar(f64),
    String(Vec<u8>),
    /// Series with one value, or one for each step.
    Series(Vec<(Labels, Sequence)>),
    /// Series with one value for each of these times.
    RangeVector {
        start_ms: i64,
        step_ms: i64,
        series: Vec<(Labels, Sequence)>,
    },
}

/// Parses a script.
///
/// # Errors
/// The first error, with the number of its line.
pub(super) fn parse_script(text: &str, features: &Features) -> Result<Vec<Command>, String> {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_matches([' ', '\t', '\r']))
        .collect();
    let is_gap = |line: &str| line.is_empty() || line.starts_with('#');
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if is_gap(lines[at]) {
            at += 1;
            continue;
        }
        let end = (at..lines.len())
            .find(|&i| is_gap(lines[i]))
            .unwrap_or(lines.len());
        let command = parse_block(&lines[at..end], features);
        let kind = command.map_err(|why| format!("line {}: {why}", at + 1))?;
        commands.push(Command { line: at + 1, kind });
        // `clear` ends its block.
        at = if lines[at].eq_ignore_ascii_case("clear") {
            at + 1
        } else {
            end
        };
    }
    Ok(commands)
}

fn parse_block(lines: &[&str], features: &Features) -> Result<CommandKind, String> {
    let first = lines[0]
        .split([' ', '\t'])
        .next()
        .unwrap_or("")
        .to_lowercase();
    match first.as_str() {
        "clear" => Ok(CommandKind::Clear),
        _ if first.starts_with("load") => parse_load(&first, lines).map(CommandKind::Load),
        _ if first.starts_with("eval") => {
            parse_eval(&first, lines, features).map(|eval| CommandKind::Eval(Box::new(eval)))
        }
        _ => Err(format!("unknown command {first:?}")),
    }
}

fn parse_load(command: &str, lines: &[&str]) -> Result<Load, String> {
    let step_ms = duration_ms(lines[0].split_whitespace().nth(1).unwrap_or(""))?;
    let mut load = Load {
        step_ms,
        series: Vec::new(),
        starts_ms: BTreeMap::new(),
    };
    let mut starts = None;
    for line in &lines[1..] {
        let (labels, rest) =
            parse_description(line.trim(), &Features::all()).map_err(|error| error.to_string())?;
        if let Some(offsets) = rest.strip_prefix("@st") {
            starts = Some((labels, parse_starts(offsets)?));
            continue;
        }
        let values = sequence::parse(rest).map_err(|error| format!("{line}: {error}"))?;
        load.starts_ms.remove(&labels);
        if let Some((of, offsets_ms)) = starts.take() {
            if of != labels || offsets_ms.len() != values.values.len() {
                return Err(format!("start timestamps of another series: {line}"));
            }
            load.starts_ms.insert(of, offsets_ms);
        }
        load.series.retain(|(known, _)| *known != labels);
        load.series.push((labels, values));
    }
    match command {
        "load" => {}
        "load_with_nhcb" => load
            .series
            .extend(histogram::native_of_classic(&load.series)?),
        _ => return Err(format!("unknown command {command:?}")),
    }
    Ok(load)
}

/// Parses the start timestamps of a sequence: `_x2 -30s-1mx4 0s`.
///
/// # Errors
/// The first invalid item.
fn parse_starts(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut starts_ms = Vec::new();
    for item in text.split_whitespace() {
        let (body, n) = match item.rsplit_once('x') {
            Some((body, n)) => (
                body,
                n.parse().map_err(|_| format!("no count after x: {item}"))?,
            ),
            None => (item, 0),
        };
        if body == "_" {
            starts_ms.extend(std::iter::repeat_n(None, n.max(1)));
            continue;
        }
        // The first character may be a sign.
        let (mut offset_ms, step_ms) = match body.get(1..).and_then(|rest| rest.find(['+', '-'])) {
            Some(before) => {
                let at = before + 1;
                (duration_ms(&body[..at])?, duration_ms(&body[at..])?)
            }
            None => (duration_ms(body)?, 0),
        };
        for _ in 0..=n {
            starts_ms.push(Some(offset_ms));
            offset_ms += step_ms;
        }
    }
    Ok(starts_ms)
}

fn parse_eval(command: &str, lines: &[&str], features: &Features) -> Result<Eval, String> {
    let (times, query) = parse_eval_line(lines[0])?;
    let expr = parse(query, features).map_err(|error| format!("{query}: {error}"))?;
    let mut eval = Eval {
        query: query.to_owned(),
        expr,
        times,
        fail: (command == "eval_fail").then_some(Text::Any),
        warnings: Notes {
            at_least_one: command == "eval_warn",
            ..Notes::default()
        },
        infos: Notes {
            at_least_one: command == "eval_info",
            ..Notes::default()
        },
        ordered: command == "eval_ordered",
        expected: Expected::Series(Vec::new()),
    };
    for line in &lines[1..] {
        if !parse_expectation(line, &mut eval)? {
            break;
        }
    }
    Ok(eval)
}

fn parse_eval_line(line: &str) -> Result<(Steps, &str), String> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let (_, kind) = (word(), word());
    let mut time = |keyword: &str| match word() {
        found if found == keyword => duration_ms(word()),
        found => Err(format!("expected {keyword}, found {found:?}")),
    };
    let times = match kind {
        "instant" => Steps::instant(time("at")?),
        "range" => Steps::range(time("from")?, time("to")?, time("step")?),
        _ => return Err(format!("unknown kind of evaluation {kind:?}")),
    };
    Ok((times, rest))
}

/// Parses a line after `eval`; returns `false` if it ends the block.
fn parse_expectation(line: &str, eval: &mut Eval) -> Result<bool, String> {
    if let Some(text) = line.strip_prefix("expected_fail_message ") {
        eval.fail = Some(Text::Equal(text.trim().to_owned()));
        return Ok(false);
    }
    if let Some(text) = line.strip_prefix("expected_fail_regexp ") {
        eval.fail = Some(Text::Matching(text.trim().to_owned()));
        return Ok(false);
    }
    if let Some(range) = line.strip_prefix("expect range vector from ") {
        let words: Vec<_> = range.split_whitespace().collect();
        let [start, "to", _, "step", step] = words[..] else {
            return Err(format!("unknown range {range:?}"));
        };
        let (start_ms, step_ms) = (duration_ms(start)?, duration_ms(step)?);
        eval.expected = Expected::RangeVector {
            start_ms,
            step_ms,
            series: Vec::new(),
        };
        return Ok(true);
    }
    if let Some(literal) = line.strip_prefix("expect string ") {
        let Ok(Expr {
            kind: ExprKind::String(text),
            ..
        }) = parse(literal, &Features::default())
        else {
            return Err(format!("not a string: {literal}"));
        };
        eval.expected = Expected::String(text.to_vec());
        return Ok(true);
    }
    if let Some(expect) = line.strip_prefix("expect ") {
        parse_expect(expect.trim(), eval)?;
        return Ok(true);
    }
    if let Ok(number) = number(line) {
        eval.expected = Expected::Scalar(number);
        return Ok(false);
    }
    let series = sequence::parse_series(line.trim())?;
    match &mut eval.expected {
        Expected::Series(list) | Expected::RangeVector { series: list, .. } => list.push(series),
        Expected::Scalar(_) | Expected::String(_) => {
            return Err(format!("no series is expected: {line}"));
        }
    }
    Ok(true)
}

fn parse_expect(expect: &str, eval: &mut Eval) -> Result<(), String> {
    let (kind, text) = expect.split_once(' ').unwrap_or((expect, ""));
    let text = match text.trim().split_once(':') {
        None if text.is_empty() => Text::Any,
        Some(("msg", text)) => Text::Equal(text.trim().to_owned()),
        Some(("regex", text)) => Text::Matching(text.trim().to_owned()),
        _ => return Err(format!("unknown expectation {expect:?}")),
    };
    match kind {
        "fail" if eval.fail.is_none() => eval.fail = Some(text),
        "warn" => eval.warnings.texts.push(text),
        "info" => eval.infos.texts.push(text),
        "no_warn" => eval.warnings.none = true,
        "no_info" => eval.infos.none = true,
        "ordered" => eval.ordered = true,
        _ => return Err(format!("unknown expectation {expect:?}")),
    }
    Ok(())
}

/// Parses a number, or a duration as its number of seconds.
fn number(text: &str) -> Result<f64, String> {
    match parse(text, &Features::default()).map(|expr| expr.kind) {
        Ok(ExprKind::Number(literal)) => Ok(literal.value),
        _ => Err(format!("not a number: {text}")),
    }
}

fn duration_ms(text: &str) -> Result<i64, String> {
    Ok((number(text)? * 1000.0).round() as i64)
}
