//! Texts of labels: natural order of `sort_by_label`, hashes of `limit_ratio`.

use std::cmp::Ordering;

use varve_tsdb::Labels;
use xxhash_rust::xxh64::xxh64;

/// Compares texts in which runs of digits count as numbers, of any length. What differs in leading zeros only is in
/// the order of the texts.
///
/// Prometheus' own order contradicts itself there and for labels that are missing; here these come first.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (Chunks(a), Chunks(b));
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
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if !is_number(a) || !is_number(b) {
        return a.cmp(b);
    }
    let [a, b] = [a, b].map(|digits| digits.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Runs of digits and runs of other characters.
struct Chunks<'a>(&'a str);

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let digit = self.0.bytes().next()?.is_ascii_digit();
        let end = self.0.find(|c: char| c.is_ascii_digit() != digit).unwrap_or(self.0.len());
        let (chunk, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(chunk)
    }
}

/// Returns where a label set lies in [0, 1): Prometheus' hash of it as a part of all hashes.
pub(crate) fn sampling_offset(labels: &Labels) -> f64 {
    let mut bytes = Vec::with_capacity(labels.size());
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(len) if len < u8::MAX => bytes.push(len),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_digits_are_numbers() {
        let ascending = ["", "2", "10.0.0.2", "10.0.0.10", "99999999999999999999", "100000000000000000000", "a", "a1"];
        let more = ["a02", "a2", "a2b", "a10", "b"];
        let ascending: Vec<_> = ascending.into_iter().chain(more).collect();
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(natural_order(a, b), i.cmp(&j), "{a} {b}");
            }
        }
    }
}
