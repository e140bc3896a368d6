//! Series in the text formats of Prometheus: the text format 0.0.4 and OpenMetrics. A name that is
//! not a legacy name is quoted, and a quoted metric name stands in the braces.

use varve_model::labels::is_legacy_name;

/// Returns `true` if a metric name is a legacy name, which needs no quotes and no escaping.
#[must_use]
pub fn is_legacy_metric_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .char_indices()
            .all(|(offset, c)| is_legacy_metric_char(offset, c))
}

/// Returns `true` if a legacy metric name may have a character at an offset.
#[must_use]
pub fn is_legacy_metric_char(offset: usize, c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | ':') || offset > 0 && c.is_ascii_digit()
}

/// Appends the name of a metric family, as in metadata.
pub fn write_metric_name(out: &mut Vec<u8>, name: &str) {
    if is_legacy_metric_name(name) {
        out.extend_from_slice(name.as_bytes());
    } else {
        write_quoted(out, name);
    }
}

/// Appends a series: its metric name, which may be empty, and its other labels in braces, if it has
/// any.
pub fn write_series<N: AsRef<str>, V: AsRef<str>>(
    out: &mut Vec<u8>,
    name: &str,
    labels: impl IntoIterator<Item = (N, V)>,
) {
    let mut separator = b'{';
    if !name.is_empty() {
        if !is_legacy_metric_name(name) {
            out.push(separator);
            separator = b',';
        }
        write_metric_name(out, name);
    }
    for (name, value) in labels {
        out.push(separator);
        separator = b',';
        let name = name.as_ref();
        if is_legacy_name(name) {
            out.extend_from_slice(name.as_bytes());
        } else {
            write_quoted(out, name);
        }
        out.push(b'=');
        write_quoted(out, value.as_ref());
    }
    if separator == b',' {
        out.push(b'}');
    }
}

/// Appends a quoted string with the escapes of the formats. All other characters stand for
/// themselves.
fn write_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        let check = |name: &str, labels: &[(&str, &str)], expect: &str| {
            let mut out = Vec::new();
            write_series(&mut out, name, labels.iter().copied());
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        };
        check("up", &[], "up");
        check(
            ":a:b",
            &[("c", "d\"\\\n\té")],
            ":a:b{c=\"d\\\"\\\\\\n\té\"}",
        );
        check("a.b", &[], r#"{"a.b"}"#);
        check("", &[("a", "b")], r#"{a="b"}"#);
        check("1", &[("ä", "")], r#"{"1","ä"=""}"#);
        // A colon is legal in a metric name only.
        check("a", &[("b:c", "d"), ("_", "e")], r#"a{"b:c"="d",_="e"}"#);
    }
}
