//! Comparison functions of `sort` and `sort_by_label`.

use std::cmp::Ordering;

use super::Direction;

/// Compares values; NaN is last.
pub(crate) fn compare(a: f64, b: f64, direction: Direction) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then_with(|| {
        let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        if direction == Direction::Ascending {
            order
        } else {
            order.reverse()
        }
    })
}

/// Compares strings in natural order: runs of digits, of any length, compare as numbers. Strings
/// that differ only in leading zeros compare as strings.
///
/// For leading zeros and missing labels, Prometheus' order is inconsistent. Here, missing labels
/// are first.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let mut left = Chunks(a);
    let mut right = Chunks(b);
    loop {
        let order = match (left.next(), right.next()) {
            (Some(left), Some(right)) => chunk_order(left, right),
            (None, None) => return a.cmp(b),
            (left, right) => return left.cmp(&right),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn chunk_order(a: &str, b: &str) -> Ordering {
    let are_numbers = [a, b].map(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    if are_numbers != [true, true] {
        return a.cmp(b);
    }
    let [a, b] = [a, b].map(|digits| digits.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Iterator over runs of digits and runs of other characters.
struct Chunks<'a>(&'a str);

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let digit = self.0.bytes().next()?.is_ascii_digit();
        let end = self
            .0
            .find(|c: char| c.is_ascii_digit() != digit)
            .unwrap_or(self.0.len());
        let (chunk, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_digits_are_numbers() {
        let ascending = [
            "",
            "2",
            "10.0.0.2",
            "10.0.0.10",
            "99999999999999999999",
            "100000000000000000000",
            "a",
            "a1",
        ];
        let more = ["a02", "a2", "a2b", "a10", "b"];
        let ascending: Vec<_> = ascending.into_iter().chain(more).collect();
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(natural_order(a, b), i.cmp(&j), "{a} {b}");
            }
        }
    }
}
