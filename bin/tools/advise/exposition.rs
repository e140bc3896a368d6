//! The text format of scrapes, as far as series go: names and labels; values and times are passed over.
//!
//! Reads Prometheus' text format 0.0.4 and OpenMetrics, quoted names included.

/// A series: its labels, the name among them as `__name__`, ascending by name.
pub(super) type Series = Vec<(String, String)>;

/// Reads all series of a text.
///
/// # Errors
/// The first line that is none, by its number.
pub(super) fn parse(text: &str) -> Result<Vec<Series>, String> {
    let mut found = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        found.push(parse_line(line).ok_or_else(|| format!("line {}: not a sample: {line:?}", idx + 1))?);
    }
    Ok(found)
}

fn parse_line(line: &str) -> Option<Series> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let mut labels = Vec::new();
    if !name.is_empty() {
        labels.push(("__name__".to_owned(), name.to_owned()));
    }
    let rest = match rest.trim_start().strip_prefix('{') {
        Some(inner) => parse_labels(inner, &mut labels)?,
        None => rest,
    };
    let value = rest.split_whitespace().next()?;
    is_number(value).then_some(())?;
    labels.sort();
    let is_named = labels.iter().any(|(name, _)| name == "__name__");
    is_named.then_some(labels)
}

/// Reads labels up to the closing brace and returns what follows it.
fn parse_labels<'a>(mut rest: &'a str, labels: &mut Series) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted)?,
            None => {
                let end = rest.find(|c: char| c == '=' || c.is_whitespace())?;
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        rest = after.trim_start();
        match rest.strip_prefix('=') {
            Some(after) => {
                let (value, after) = parse_quoted(after.trim_start().strip_prefix('"')?)?;
                labels.push((name, value));
                rest = after;
            }
            // A quoted name without a value is that of the metric.
            None => labels.push(("__name__".to_owned(), name)),
        }
    }
}

/// Reads a text up to its closing quote and returns what follows it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok() || text.starts_with("0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Option<&str>) {
        let print = |series: Vec<Series>| {
            let label = |(name, value): &(String, String)| format!("{name}={value}");
            series[0].iter().map(label).collect::<Vec<_>>().join("|")
        };
        assert_eq!(parse(line).ok().map(print).as_deref(), expect, "{line}");
    }

    #[test]
    fn samples_are_read_with_their_labels() {
        check("a 1", Some("__name__=a"));
        check("a{} 1 1700000000000", Some("__name__=a"));
        check("a{y=\"1\",x=\"2\",} +Inf", Some("__name__=a|x=2|y=1"));
        check("a { x = \"b\\\\\\\"\\n}{\" , y=\"\" } 1e3", Some("__name__=a|x=b\\\"\n}{|y="));
        check("{\"a.b\",\"c d\"=\"e\"} NaN", Some("__name__=a.b|c d=e"));
        check("a_bucket{le=\"1\"} 1 # {trace_id=\"x\"} 0.5", Some("__name__=a_bucket|le=1"));
    }

    #[test]
    fn what_is_no_sample_is_refused_by_its_line() {
        for line in ["a", "a{x=\"1\" 1", "a{x=1} 1", "{x=\"1\"} 1", "a one", "a{x=\"1\"}"] {
            check(line, None);
        }
        assert_eq!(parse("a 1\n# TYPE a gauge\n\nb").unwrap_err(), "line 4: not a sample: \"b\"");
    }
}
