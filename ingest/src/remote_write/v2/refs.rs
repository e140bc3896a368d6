//! The label references of a series, summed up.
//!
//! The key of a label set is a sum over its symbols, each at its position ([`KeyLanes`]). Consecutive series of a scrape
//! target share most labels, so [`LabelRefs::step`] computes the sums of a series from those of the series before: it
//! compares the encoded references by words, and replaces the values of labels that differ.

use varve_protobuf::{Reader, Span};
use varve_tsdb::labels::METRIC_NAME;

use crate::batch::{KeyLanes, RouteHasher, Symbol};
use crate::error::{Malformed, WriteError};

/// What resolves references.
#[derive(Clone, Copy)]
pub(super) struct Resolver<'a> {
    pub(super) message: &'a [u8],
    pub(super) hasher: &'a RouteHasher,
    pub(super) symbols: &'a [Symbol],
}

/// The sums over the references of a label set.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LabelRefs {
    /// Number of references.
    pub(super) n: usize,
    /// The combined hashes of the symbols.
    pub(super) key: KeyLanes,
    /// Total size of the symbols in bytes.
    pub(super) size: u64,
    /// Position and symbol of the metric name.
    metric_name: Option<(usize, u32)>,
    /// The next reference is the metric name.
    is_metric_name: bool,
}

impl LabelRefs {
    /// Returns the symbol of the metric name.
    pub(super) fn metric_name(&self) -> Option<u32> {
        self.metric_name.map(|(_, symbol)| symbol)
    }

    /// Adds a reference.
    ///
    /// # Errors
    /// [`Malformed::Symbol`].
    #[inline]
    pub(super) fn push(&mut self, resolver: Resolver<'_>, number: u32) -> Result<(), WriteError> {
        let symbol = resolver.symbol(number)?;
        resolver.hasher.add(&mut self.key, self.n, symbol.hash);
        if self.n.is_multiple_of(2) {
            // Fast path: most label names differ from `__name__` in size.
            self.is_metric_name =
                symbol.text.len() == METRIC_NAME.len() && symbol.text.of(resolver.message) == METRIC_NAME.as_bytes();
        } else if self.is_metric_name {
            self.metric_name = Some((self.n, number));
        }
        self.size += symbol.text.len() as u64;
        self.n += 1;
        Ok(())
    }

    /// Returns the sums over the packed references `after`, if they differ from the references `before` of these sums
    /// only in values of labels and have the same size.
    ///
    /// # Errors
    /// [`Malformed`] if a different reference is not valid.
    pub(super) fn step(
        mut self,
        resolver: Resolver<'_>,
        before: Span,
        after: Span,
    ) -> Result<Option<Self>, WriteError> {
        let (old, new) = (before.of(resolver.message), after.of(resolver.message));
        if old.len() != new.len() {
            return Ok(None);
        }
        let Some(range) = differing(old, new) else { return Ok(Some(self)) };
        // Every reference ends with a byte below 0x80.
        let mut at = new[..range.start].iter().filter(|&&byte| byte < 0x80).count();
        let part = |of: Span| Span::new(of.start as usize + range.start, of.start as usize + range.end);
        let (mut old, mut new) = [before, after].map(part).map(|of| Reader::over(resolver.message, of)).into();
        while !old.rest().is_empty() && !new.rest().is_empty() {
            let (from, to) = (old.varint()? as u32, new.varint()? as u32);
            if from != to {
                // The name of a label differs.
                if at.is_multiple_of(2) {
                    return Ok(None);
                }
                let (from, symbol) = (resolver.symbol(from)?, resolver.symbol(to)?);
                resolver.hasher.replace(&mut self.key, at, from.hash, symbol.hash);
                self.size = self.size - from.text.len() as u64 + symbol.text.len() as u64;
                self.metric_name = self.metric_name.map(|name| if name.0 == at { (at, to) } else { name });
            }
            at += 1;
        }
        Ok((old.rest().is_empty() && new.rest().is_empty()).then_some(self))
    }
}

impl Resolver<'_> {
    /// Returns a symbol.
    ///
    /// # Errors
    /// [`Malformed::Symbol`].
    #[inline]
    pub(super) fn symbol(self, number: u32) -> Result<Symbol, WriteError> {
        let missing = || Malformed::Symbol { number, n_symbols: self.symbols.len() };
        Ok(*self.symbols.get(number as usize).ok_or_else(missing)?)
    }
}

/// Returns the range of bytes from the first difference to the last one, of two encodings of the same size. It begins
/// and ends between varints in both, unless the last varint is truncated.
fn differing(old: &[u8], new: &[u8]) -> Option<std::ops::Range<usize>> {
    let ((old_words, _), (new_words, _)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    let n_equal = 8 * old_words.iter().zip(new_words).take_while(|(old, new)| old == new).count();
    let mut start = (n_equal..new.len()).find(|&at| old[at] != new[at])?;
    let ((_, old_words), (_, new_words)) = (old.as_rchunks::<8>(), new.as_rchunks::<8>());
    let n_equal = 8 * old_words.iter().rev().zip(new_words.iter().rev()).take_while(|(old, new)| old == new).count();
    let mut end = (start..new.len() - n_equal).rfind(|&at| old[at] != new[at])? + 1;
    while start > 0 && new[start - 1] >= 0x80 {
        start -= 1;
    }
    while end < new.len() && (old[end - 1] >= 0x80 || new[end - 1] >= 0x80) {
        end += 1;
    }
    Some(start..end)
}
