//! Environment variables in the values of external labels, replaced as Go's `os.Expand` does.

use std::collections::{BTreeMap, BTreeSet};

/// Replaces `$NAME` and `${NAME}` in the values of labels by environment variables, and `$$` by
/// `$`. Removes labels whose value becomes empty, since an empty value stands for a missing label.
/// Returns the names of variables that are not set or empty.
pub(super) fn expand_labels(labels: &mut BTreeMap<String, String>) -> BTreeSet<String> {
    let mut empty = BTreeSet::new();
    for value in labels.values_mut() {
        *value = expand(value, |name| {
            let found = std::env::var_os(name).unwrap_or_default();
            if found.is_empty() {
                empty.insert(name.to_owned());
            }
            found.to_string_lossy().into_owned()
        });
    }
    labels.retain(|_, value| !value.is_empty());
    empty
}

/// Returns the text with `$NAME` and `${NAME}` replaced by `variable(name)`, and `$$` by `$`. A
/// dollar sign without a name stays; `${}` and an unclosed `${` are removed.
fn expand(text: &str, mut variable: impl FnMut(&str) -> String) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (name, n_bytes) = name_of(after);
        match name {
            "$" => expanded.push('$'),
            "" if n_bytes == 0 => expanded.push('$'),
            "" => {}
            _ => expanded.push_str(&variable(name)),
        }
        rest = &after[n_bytes..];
    }
    expanded + rest
}

/// Returns the name at the start of the text after a dollar sign, and the size of the name and its
/// braces.
fn name_of(text: &str) -> (&str, usize) {
    if let Some(braced) = text.strip_prefix('{') {
        return braced
            .find('}')
            .map_or(("", 1), |size| (&braced[..size], size + 2));
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || "*#$@!?-".contains(c)) {
        return (&text[..1], 1);
    }
    let size = text
        .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    (&text[..size], size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_as_in_go() {
        let variable = |name: &str| match name {
            "REGION" => "eu".to_owned(),
            "1" => "one".to_owned(),
            "ö" => "umlaut".to_owned(),
            _ => String::new(),
        };
        for (text, expect) in [
            ("", ""),
            ("plain", "plain"),
            ("$REGION", "eu"),
            ("${REGION}-1", "eu-1"),
            ("$REGION-1", "eu-1"),
            ("a$REGION$REGION", "aeueu"),
            ("$$REGION", "$REGION"),
            ("${$}REGION", "$REGION"),
            ("$12", "one2"),
            ("$UNSET", ""),
            ("$", "$"),
            ("a$ b", "a$ b"),
            ("$ö", "$ö"),
            ("${ö}", "umlaut"),
            ("a${}b", "ab"),
            ("a${b", "ab"),
        ] {
            assert_eq!(expand(text, variable), expect, "{text:?}");
        }
    }

    #[test]
    fn an_empty_label_is_removed() {
        let labels = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
        let mut unset = labels("$VARVE_TEST_IS_NOT_SET");
        let names = BTreeSet::from(["VARVE_TEST_IS_NOT_SET".to_owned()]);
        assert_eq!(expand_labels(&mut unset), names);
        assert_eq!(unset, BTreeMap::new());
        let mut escaped = labels("$$1");
        assert_eq!(expand_labels(&mut escaped), BTreeSet::new());
        assert_eq!(escaped, labels("$1"));
    }
}
