//! Reading a segment: its frames, and what lies between them.

use std::ops::Range;

use super::SegmentKind;
use super::frame::{BadHeader, Frame, SEGMENT_HEADER_SIZE, find_marker, parse_frame, parse_segment_header};

/// A piece of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A sound frame.
    Frame(Frame<'a>),
    /// Bytes that are none; a sound frame follows.
    Damaged(Range<usize>),
    /// Bytes up to the end of the file that are none: what a crash left.
    Torn(Range<usize>),
}

/// Iterates over the pieces of a segment.
///
/// # Errors
/// [`BadHeader`] if the header is not sound: then no frame can be trusted, as the salt is not known.
pub(super) fn scan(bytes: &[u8], kind: SegmentKind) -> Result<Items<'_>, BadHeader> {
    let salt = parse_segment_header(bytes, kind)?;
    Ok(Items { bytes, at: SEGMENT_HEADER_SIZE, salt })
}

/// Iterator of [`scan`].
#[derive(Debug)]
pub(super) struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    salt: u64,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        if let Some(frame) = parse_frame(rest, self.salt) {
            self.at += frame.size();
            return Some(Item::Frame(frame));
        }
        let start = std::mem::replace(&mut self.at, self.bytes.len());
        match self.next_frame(start + 1) {
            Some(next) => {
                self.at = next;
                Some(Item::Damaged(start..next))
            }
            None => Some(Item::Torn(start..self.bytes.len())),
        }
    }
}

impl Items<'_> {
    /// Returns where the first sound frame at or behind `from` begins. A length in a damaged header is not believed.
    fn next_frame(&self, mut from: usize) -> Option<usize> {
        while let Some(found) = find_marker(&self.bytes[from..]) {
            from += found;
            if parse_frame(&self.bytes[from..], self.salt).is_some() {
                return Some(from);
            }
            from += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::frame::{begin_frame, finish_frame, segment_header};
    use proptest::prelude::*;

    const SALT: u64 = 42;

    fn segment(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = segment_header(SegmentKind::Samples, SALT).to_vec();
        for (i, payload) in payloads.iter().enumerate() {
            let at = begin_frame(&mut bytes);
            bytes.extend_from_slice(payload);
            finish_frame(&mut bytes, at, SALT, i as u64, 2);
        }
        bytes
    }

    fn sequences(bytes: &[u8]) -> Vec<u64> {
        let frame = |item| if let Item::Frame(frame) = item { Some(frame.sequence) } else { None };
        scan(bytes, SegmentKind::Samples).unwrap().filter_map(frame).collect()
    }

    proptest! {
        /// Damage costs the frames it touches and no other, even where payloads hold frames of another file.
        #[test]
        fn frames_around_damage_are_found(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..8),
            nested: bool, at in any::<prop::sample::Index>(), size in 1..60_usize,
        ) {
            let mut payloads = payloads;
            if nested {
                payloads[0] = segment(&[vec![1, 2, 3]]).split_off(SEGMENT_HEADER_SIZE);
                payloads[0][8] ^= 1;
            }
            let mut bytes = segment(&payloads);
            let at = SEGMENT_HEADER_SIZE + at.index(bytes.len() - SEGMENT_HEADER_SIZE);
            let end = (at + size).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|b| *b ^= 0x55);
            let mut start = SEGMENT_HEADER_SIZE;
            let mut untouched = Vec::new();
            for (i, payload) in payloads.iter().enumerate() {
                let next = start + 24 + payload.len();
                if next <= at || end <= start { untouched.push(i as u64); }
                start = next;
            }
            prop_assert_eq!(sequences(&bytes), untouched);
        }

        #[test]
        fn any_bytes_are_accounted_for(tail in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..98_usize) {
            let mut bytes = segment(&[vec![7; 20], vec![8; 30]]);
            bytes.truncate(bytes.len() - cut);
            bytes.extend(tail);
            let mut at = SEGMENT_HEADER_SIZE;
            for item in scan(&bytes, SegmentKind::Samples).unwrap() {
                at = match item {
                    Item::Frame(frame) => at + frame.size(),
                    Item::Damaged(range) | Item::Torn(range) => { prop_assert_eq!(range.start, at); range.end }
                };
            }
            prop_assert_eq!(at, bytes.len());
        }
    }
}
