//! Named exceptions to the counts that may only fall, each with its reason.

use crate::ratchet::Found;

const EXCEPTIONS: &str = include_str!("../exceptions.txt");

/// One thing that stays as it is.
struct Exception<'a> {
    /// The name of the count that it leaves.
    count: &'a str,
    /// What stays: a file, a file and its function, or the files of a cycle.
    place: &'a str,
    reason: &'a str,
}

/// Takes the exceptions out of `found`, and returns those that are no longer needed.
pub(crate) fn take_from(found: &mut Found) -> Vec<String> {
    let mut unused = Vec::new();
    for exception in parse(EXCEPTIONS) {
        let Exception {
            count,
            place,
            reason,
        } = exception;
        assert!(!reason.is_empty(), "{place}: an exception needs a reason");
        let rows = found
            .get_mut(count)
            .unwrap_or_else(|| panic!("tests/tidy/exceptions.txt: nothing counts {count}"));
        let n_before = rows.len();
        rows.retain(|row| row.split(" (").next() != Some(place));
        if rows.len() == n_before {
            unused.push(format!(
                "{count}: remove {place} from tests/tidy/exceptions.txt"
            ));
        }
    }
    unused
}

/// Parses sections of the form `[count]`, and below them rows of the form `place: reason`.
fn parse(text: &str) -> Vec<Exception<'_>> {
    let mut exceptions = Vec::new();
    let mut count = "";
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            count = name.trim_end_matches(']');
            continue;
        }
        let (place, reason) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("tests/tidy/exceptions.txt: no reason: {line}"));
        exceptions.push(Exception {
            count,
            place,
            reason,
        });
    }
    exceptions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_rows_are_parsed() {
        let text =
            "# Comment.\n[long files]\na/b.rs: one table\n\n[import cycles]\na b: one: two\n";
        let parsed: Vec<_> = parse(text)
            .iter()
            .map(|exception| (exception.count, exception.place, exception.reason))
            .collect();
        assert_eq!(
            parsed,
            [
                ("long files", "a/b.rs", "one table"),
                ("import cycles", "a b", "one: two")
            ]
        );
    }
}
