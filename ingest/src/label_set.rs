//! Checks the label pairs of a series and creates its [`Labels`].
//!
//! The order of the checks is that of Prometheus' remote-write handler: first the metric name,
//! names and values, then duplicates. Empty values are removed last. So a duplicate name is invalid
//! even if one of its values is empty, and so is an empty name with any value. Any UTF-8 is a valid
//! name.

use std::borrow::Cow;
use std::fmt::Write;

use varve_model::labels::{LABELS_SIZE_MAX, LabelsError, is_legacy_name};
use varve_model::{Labels, RejectionReason};

use crate::limits::Limits;

/// Checks and sorts the labels of a series. `strings` is reused memory.
///
/// # Errors
/// The first reason for which Prometheus or a limit rejects the labels.
pub(crate) fn parse<'a>(
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &Limits,
    strings: &mut Vec<(&'a str, &'a str)>,
) -> Result<Labels, RejectionReason> {
    strings.clear();
    let mut size = 0;
    for (name, value) in pairs {
        check_pair(strings.len(), name, value, &mut size, limits)?;
        strings.push((utf8(name)?, utf8(value)?));
    }
    build(strings)
}

/// Like [`parse`], for strings that are known to be valid UTF-8.
///
/// # Errors
/// The errors of [`parse`].
pub(crate) fn parse_strings(
    strings: &mut [(&str, &str)],
    limits: &Limits,
) -> Result<Labels, RejectionReason> {
    let mut size = 0;
    for (idx, (name, value)) in strings.iter().enumerate() {
        check_pair(idx, name.as_bytes(), value.as_bytes(), &mut size, limits)?;
    }
    build(strings)
}

/// Checks the sizes of a label, and adds them to `size`, the size of all previous labels.
#[inline]
fn check_pair(
    idx: usize,
    name: &[u8],
    value: &[u8],
    size: &mut usize,
    limits: &Limits,
) -> Result<(), RejectionReason> {
    if idx >= limits.labels_per_series_max {
        let limit = saturating_u32(limits.labels_per_series_max);
        return Err(RejectionReason::TooManyLabels { limit });
    }
    if name.len() > limits.label_name_size_max {
        let limit = saturating_u32(limits.label_name_size_max);
        return Err(RejectionReason::LabelNameTooLong { limit });
    }
    if value.len() > limits.label_value_size_max {
        let limit = saturating_u32(limits.label_value_size_max);
        return Err(RejectionReason::LabelValueTooLong { limit });
    }
    // The store would reject it with an error that suggests a retry. Checked before the strings are
    // copied, since a few bytes of symbol references can make a large label set.
    *size += name.len() + value.len();
    if *size > LABELS_SIZE_MAX {
        Err(RejectionReason::LabelSetTooLarge)
    } else {
        Ok(())
    }
}

fn saturating_u32(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// Says by how much a label set exceeds the limit of `reason`. Returns `None` if the reason is not
/// such a limit.
pub(crate) fn excess<'a>(
    mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    reason: RejectionReason,
) -> Option<String> {
    match reason {
        RejectionReason::TooManyLabels { .. } => Some(format!("{} labels", pairs.count())),
        RejectionReason::LabelNameTooLong { limit } => {
            let (name, _) = pairs.find(|(name, _)| name.len() > limit as usize)?;
            Some(format!("a label name of {} bytes", name.len()))
        }
        RejectionReason::LabelValueTooLong { limit } => {
            let (name, value) = pairs.find(|(_, value)| value.len() > limit as usize)?;
            let name = String::from_utf8_lossy(name);
            Some(format!("{} bytes in label {name}", value.len()))
        }
        RejectionReason::LabelSetTooLarge => {
            let size: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
            // Relabel rules may have made it larger.
            (size > LABELS_SIZE_MAX).then(|| format!("{size} bytes of labels"))
        }
        _ => None,
    }
}

fn build(strings: &mut [(&str, &str)]) -> Result<Labels, RejectionReason> {
    check(Labels::from_unsorted(strings).map_err(|refused| reason(&refused))?)
}

/// Checks the properties that relabeling can break: the metric name, and the size.
pub(crate) fn check(labels: Labels) -> Result<Labels, RejectionReason> {
    if labels.metric_name().is_empty() {
        return Err(RejectionReason::MissingMetricName);
    }
    if labels.size() > LABELS_SIZE_MAX {
        Err(RejectionReason::LabelSetTooLarge)
    } else {
        Ok(labels)
    }
}

/// Returns the reject reason for an error of [`Labels`].
pub(crate) fn reason(error: &LabelsError) -> RejectionReason {
    match error {
        LabelsError::EmptyName => RejectionReason::EmptyLabelName,
        LabelsError::DuplicateName(_) => RejectionReason::DuplicateLabelName,
    }
}

/// Formats label pairs, whose bytes may be invalid UTF-8, like Prometheus. Truncates after about
/// [`PRINT_SIZE_MAX`] bytes.
pub(crate) fn print<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut out = String::from("{");
    for (i, (name, value)) in pairs.enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        if out.len() > PRINT_SIZE_MAX {
            out.push_str("...");
            break;
        }
        let name = excerpt(name);
        let value = excerpt(value);
        let printed = if is_legacy_name(&name) {
            write!(out, "{name}={value:?}")
        } else {
            write!(out, "{name:?}={value:?}")
        };
        printed.expect("writing to a String cannot fail");
    }
    out.push('}');
    out
}

fn utf8(bytes: &[u8]) -> Result<&str, RejectionReason> {
    std::str::from_utf8(bytes).map_err(|_| RejectionReason::InvalidUtf8)
}

/// Returns bytes as a string for an error message. Replaces invalid UTF-8 and truncates long
/// values.
pub(crate) fn excerpt(bytes: &[u8]) -> Cow<'_, str> {
    if bytes.len() <= EXCERPT_SIZE_MAX {
        return String::from_utf8_lossy(bytes);
    }
    Cow::Owned(String::from_utf8_lossy(&bytes[..EXCERPT_SIZE_MAX]).into_owned() + "...")
}

/// Size in bytes after which no further label is printed. Senders log about a kilobyte of the
/// response.
const PRINT_SIZE_MAX: usize = 256;
const EXCERPT_SIZE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];

    const LIMITS: fn() -> Limits = || Limits {
        labels_per_series_max: 3,
        label_name_size_max: 8,
        label_value_size_max: 4,
        ..Limits::for_tests()
    };

    fn check(pairs: Pairs<'_>, expect: Result<&str, RejectionReason>) {
        let found = parse(pairs.iter().copied(), &LIMITS(), &mut Vec::new())
            .map(|labels| labels.to_string());
        assert_eq!(
            found.as_deref(),
            expect.as_ref().copied(),
            "{}",
            print(pairs.iter().copied())
        );
    }

    #[test]
    fn label_sets_are_sorted_and_empty_values_removed() {
        check(
            &[(b"job", b"x"), (b"__name__", b"up"), (b"z", b"")],
            Ok(r#"{__name__="up", job="x"}"#),
        );
        check(
            &["__name__", "a.b/c"].map(|n| (n.as_bytes(), "é".as_bytes())),
            Ok(r#"{__name__="é", "a.b/c"="é"}"#),
        );
    }

    #[test]
    fn invalid_label_sets_have_the_reasons_of_prometheus() {
        check(&[], Err(RejectionReason::MissingMetricName));
        check(&[(b"job", b"x")], Err(RejectionReason::MissingMetricName));
        check(
            &[(b"__name__", b"")],
            Err(RejectionReason::MissingMetricName),
        );
        check(
            &[(b"__name__", b"up"), (b"", b"x")],
            Err(RejectionReason::EmptyLabelName),
        );
        check(
            &[(b"__name__", b"up"), (b"", b"")],
            Err(RejectionReason::EmptyLabelName),
        );
        check(
            &[(b"a", b"1"), (b"__name__", b"up"), (b"a", b"2")],
            Err(RejectionReason::DuplicateLabelName),
        );
        check(
            &[(b"a", b"1"), (b"__name__", b"up"), (b"a", b"")],
            Err(RejectionReason::DuplicateLabelName),
        );
        check(
            &[(b"__name__", b"up"), (b"a\xff", b"1")],
            Err(RejectionReason::InvalidUtf8),
        );
        check(
            &[(b"__name__", b"up"), (b"a", b"\xc3")],
            Err(RejectionReason::InvalidUtf8),
        );
    }

    #[test]
    fn limits_are_exact() {
        check(&[(b"__name__", b"1234")], Ok(r#"{__name__="1234"}"#));
        check(
            &[(b"__name__", b"12345")],
            Err(RejectionReason::LabelValueTooLong { limit: 4 }),
        );
        check(
            &[(b"__name__", b"up"), (b"123456789", b"")],
            Err(RejectionReason::LabelNameTooLong { limit: 8 }),
        );
        check(
            &[(b"__name__", b"up"), (b"b", b"1"), (b"c", b"1")],
            Ok(r#"{__name__="up", b="1", c="1"}"#),
        );
        check(
            &[
                (b"__name__", b"up"),
                (b"b", b"1"),
                (b"c", b"1"),
                (b"d", b"1"),
            ],
            Err(RejectionReason::TooManyLabels { limit: 3 }),
        );
    }

    #[test]
    fn a_rejected_label_set_says_by_how_much_it_exceeds_the_limit() {
        let pairs: [(&[u8], &[u8]); 2] = [(b"__name__", b"up"), (b"long_name", b"12345")];
        for (reason, expect) in [
            (RejectionReason::TooManyLabels { limit: 1 }, "2 labels"),
            (
                RejectionReason::LabelNameTooLong { limit: 8 },
                "a label name of 9 bytes",
            ),
            (
                RejectionReason::LabelValueTooLong { limit: 4 },
                "5 bytes in label long_name",
            ),
        ] {
            let found = excess(pairs.into_iter(), reason);
            assert_eq!(found.as_deref(), Some(expect), "{reason}");
        }
        for reason in [
            RejectionReason::LabelSetTooLarge,
            RejectionReason::OutOfOrder,
        ] {
            assert_eq!(excess(pairs.into_iter(), reason), None);
        }
        let large = vec![b'x'; LABELS_SIZE_MAX];
        let pairs: [(&[u8], &[u8]); 1] = [(b"a", &large)];
        let found = excess(pairs.into_iter(), RejectionReason::LabelSetTooLarge);
        let expect = format!("{} bytes of labels", LABELS_SIZE_MAX + 1);
        assert_eq!(found, Some(expect));
    }

    #[test]
    fn examples_are_short_for_any_label_set() {
        let long = vec![0xff; 100_000];
        let pairs: Vec<(&[u8], &[u8])> = vec![(&long, &long); 1000];
        let printed = print(pairs.into_iter());
        assert!(printed.len() < 2_000, "{}", printed.len());
        assert_eq!(
            print([(&b"a"[..], &b"\"\xff"[..]), (b"b c", b"")].into_iter()),
            "{a=\"\\\"\u{fffd}\", \"b c\"=\"\"}"
        );
    }
}
