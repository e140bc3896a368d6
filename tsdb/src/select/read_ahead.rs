//! Series of a block whose labels were read before they are needed.
//!
//! Hundreds of blocks are merged series by series. If the cursor of each block moved by one series
//! at a time, its memory would have left the caches of the processor before its next move: this
//! made the labels of a series in 400 blocks more than twice as expensive as in one.

use varve_context::Charge;

use crate::error::Result;

/// Maximum number of series that are read ahead.
const SERIES_MAX: usize = 32;
/// Size of packed labels in bytes above which no more are read ahead.
const SIZE_MAX: usize = 16 << 10;

/// The current series of a block, and some after it.
pub(super) struct ReadAhead {
    /// The packed labels of the series, one after the other.
    packed: String,
    /// The ordinals of the series, and the end of the labels of each.
    series: Vec<(u32, usize)>,
    /// The index of the current series.
    at: usize,
    /// Number of series to read next: few at first, because some callers need only few.
    n_next: usize,
    charge: Charge,
}

impl ReadAhead {
    /// Creates a list without series.
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            packed: String::new(),
            series: Vec::new(),
            at: 0,
            n_next: 1,
            charge,
        }
    }

    /// Returns the number of series from the current one on.
    pub(super) fn len(&self) -> usize {
        self.series.len() - self.at
    }

    /// Advances to the next series. Returns `false`, and is empty, if there is none.
    pub(super) fn advance(&mut self) -> bool {
        if self.len() > 1 {
            self.at += 1;
            return true;
        }
        self.packed.clear();
        self.series.clear();
        self.at = 0;
        false
    }

    /// Returns `true` if no more series should be added.
    pub(super) fn is_full(&self) -> bool {
        self.series.len() == self.n_next || self.packed.len() > SIZE_MAX
    }

    /// Adds a series with its packed labels.
    pub(super) fn push(&mut self, ordinal: u32, packed: &str) {
        self.packed.push_str(packed);
        self.series.push((ordinal, self.packed.len()));
    }

    /// Charges the memory, and `buffers_size` bytes in which the labels were built, after series
    /// were added.
    ///
    /// # Errors
    /// If the request exceeds its memory limit.
    pub(super) fn charge(&mut self, buffers_size: usize) -> Result<()> {
        self.n_next = (2 * self.n_next).min(SERIES_MAX);
        let size = buffers_size
            + self.packed.capacity()
            + self.series.capacity() * size_of::<(u32, usize)>();
        let charged = self.charge.size();
        Ok(self.charge.grow(size.saturating_sub(charged))?)
    }

    /// Returns the ordinal of the current series, or `None` if there is none.
    pub(super) fn ordinal(&self) -> Option<u32> {
        self.series.get(self.at).map(|(ordinal, _)| *ordinal)
    }

    /// Returns the packed labels of the current series, or `None` if there is none.
    pub(super) fn packed(&self) -> Option<&str> {
        let (_, end) = *self.series.get(self.at)?;
        let start = match self.at.checked_sub(1) {
            Some(before) => self.series[before].1,
            None => 0,
        };
        Some(&self.packed[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_context::QueryContext;

    proptest! {
        #[test]
        fn series_are_returned_in_order_with_their_labels(
            labels in proptest::collection::vec(prop_oneof!["[a-c]{0,5}", "d{6000}"], 0..200),
        ) {
            let mut ahead = ReadAhead::new(QueryContext::unbounded().charge());
            let mut rest = (0..).zip(&labels);
            for (i, packed) in labels.iter().enumerate() {
                if !ahead.advance() {
                    while !ahead.is_full() && let Some((ordinal, packed)) = rest.next() {
                        ahead.push(ordinal, packed);
                    }
                    ahead.charge(0).unwrap();
                    prop_assert!(ahead.len() <= SERIES_MAX);
                }
                prop_assert_eq!(ahead.ordinal(), Some(i as u32));
                prop_assert_eq!(ahead.packed(), Some(&**packed));
            }
            prop_assert!(rest.next().is_none() && ahead.len() <= 1);
            prop_assert!(!ahead.advance());
            prop_assert_eq!((ahead.len(), ahead.ordinal(), ahead.packed()), (0, None, None));
        }
    }
}
