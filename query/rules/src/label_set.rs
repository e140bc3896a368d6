//! Label sets of samples that rules write.

use std::collections::BTreeMap;

use varve_model::Labels;
use varve_model::labels::LabelsBuilder;

/// Returns `base` with `changes` applied in order. A value replaces an earlier one. An empty value
/// removes the label.
pub(crate) fn with_labels<'a>(
    base: &Labels,
    changes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Labels {
    merge(base, &changes.into_iter().collect())
}

/// Returns `base` with the labels of `changes` set to their values. An empty value removes the
/// label.
pub(crate) fn merge(base: &Labels, changes: &BTreeMap<&str, &str>) -> Labels {
    let size = changes
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum::<usize>();
    let mut builder = LabelsBuilder::with_capacity(base.as_packed().len() + size);
    let mut changes = changes.iter().peekable();
    for (name, value) in base {
        while let Some((new, value)) = changes.next_if(|(new, _)| **new < name) {
            builder.push(new, value);
        }
        let value = changes
            .next_if(|(new, _)| **new == name)
            .map_or(value, |(_, value)| value);
        builder.push(name, value);
    }
    for (name, value) in changes {
        builder.push(name, value);
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_add_and_remove_labels() {
        let base = Labels::from_pairs([("b", "1"), ("d", "2"), ("f", "3")]).unwrap();
        let check = |changes: &[(&str, &str)], expect: &str| {
            assert_eq!(
                with_labels(&base, changes.iter().copied()).to_string(),
                expect
            );
        };
        check(&[], r#"{b="1", d="2", f="3"}"#);
        check(
            &[("a", "x"), ("c", "y"), ("g", "z")],
            r#"{a="x", b="1", c="y", d="2", f="3", g="z"}"#,
        );
        check(
            &[("f", "x"), ("b", "y"), ("d", "z")],
            r#"{b="y", d="z", f="x"}"#,
        );
        check(&[("b", ""), ("e", ""), ("f", "x"), ("f", "")], r#"{d="2"}"#);
        check(
            &[("d", ""), ("d", "x"), ("a", ""), ("a", "y"), ("e", "z")],
            r#"{a="y", b="1", d="x", e="z", f="3"}"#,
        );
        assert_eq!(
            with_labels(&Labels::empty(), [("a", "1"), ("b", "")]).to_string(),
            r#"{a="1"}"#
        );
    }
}
