//! What the decoder computes from the label references of a series: the key, the size, the metric
//! name.
//!
//! The key of a label set is a sum over its symbols and their positions ([`KeyLanes`]). Consecutive
//! series of a target share most labels. So [`LabelRefs::replace`] computes the sums from those of
//! the series before: it compares the encoded references by words, and replaces the values of
//! labels that differ.

use std::ops::Range;

use varve_model::labels::METRIC_NAME;
use varve_protobuf::{Reader, Span};

use crate::batch::{KeyLanes, RouteHasher, Symbol};
use crate::error::{Malformed, WriteError};

/// Resolves references to symbols.
#[derive(Clone, Copy)]
pub(super) struct Resolver<'a> {
    pub(super) message: &'a [u8],
    pub(super) hasher: &'a RouteHasher,
    pub(super) symbols: &'a [Symbol],
}

/// The sums over the references of a label set.
#[derive(Debug, Default)]
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
    /// [`Malformed::Symbol`] if there is no such symbol.
    #[inline]
    pub(super) fn push(&mut self, resolver: Resolver<'_>, number: u32) -> Result<(), WriteError> {
        let symbol = resolver.symbol(number)?;
        resolver.hasher.push(&mut self.key, self.n, symbol.hash);
        if self.n.is_multiple_of(2) {
            // Fast path: most label names differ from `__name__` in size.
            self.is_metric_name = symbol.text.len() == METRIC_NAME.len()
                && symbol.text.slice(resolver.message) == METRIC_NAME.as_bytes();
        } else if self.is_metric_name {
            self.metric_name = Some((self.n, number));
        }
        self.size += symbol.text.len() as u64;
        self.n += 1;
        Ok(())
    }

    /// Replaces the sums over the packed references `before` with those over `after`. Both have at
    /// most 127 bytes, and `before` is valid.
    ///
    /// # Errors
    /// [`Malformed`] if a reference in `after` is not valid. The sums must not be used then.
    pub(super) fn replace(
        &mut self,
        resolver: Resolver<'_>,
        before: Span,
        after: Span,
    ) -> Result<(), WriteError> {
        if self.step(resolver, before, after)? {
            return Ok(());
        }
        *self = Self::default();
        let mut packed = Reader::over(resolver.message, after);
        while !packed.rest().is_empty() {
            self.push(resolver, packed.varint()? as u32)?;
        }
        Ok(())
    }

    /// Replaces the sums, unless `before` and `after` differ in their sizes or in more than values
    /// of labels. Returns `false` then: the sums are not those of either.
    fn step(
        &mut self,
        resolver: Resolver<'_>,
        before: Span,
        after: Span,
    ) -> Result<bool, WriteError> {
        let old = before.slice(resolver.message);
        let new = after.slice(resolver.message);
        if old.len() != new.len() {
            return Ok(false);
        }
        let Some(range) = differing(old, new) else {
            return Ok(true);
        };
        // Every reference ends with a byte below 0x80.
        let mut at = new[..range.start]
            .iter()
            .filter(|&&byte| byte < 0x80)
            .count();
        let mut old = Reader::over(resolver.message, part(before, &range));
        let mut new = Reader::over(resolver.message, part(after, &range));
        while !old.rest().is_empty() && !new.rest().is_empty() {
            let from = old.varint()? as u32;
            let to = new.varint()? as u32;
            if from != to {
                // The name of a label differs.
                if at.is_multiple_of(2) {
                    return Ok(false);
                }
                let from = resolver.symbol(from)?;
                let symbol = resolver.symbol(to)?;
                resolver
                    .hasher
                    .replace(&mut self.key, at, from.hash, symbol.hash);
                self.size = self.size - from.text.len() as u64 + symbol.text.len() as u64;
                self.metric_name = self
                    .metric_name
                    .map(|name| if name.0 == at { (at, to) } else { name });
            }
            at += 1;
        }
        Ok(old.rest().is_empty() && new.rest().is_empty())
    }
}

impl Resolver<'_> {
    /// Returns a symbol.
    ///
    /// # Errors
    /// [`Malformed::Symbol`] if there is no such symbol.
    #[inline]
    pub(super) fn symbol(self, number: u32) -> Result<Symbol, WriteError> {
        match self.symbols.get(number as usize) {
            Some(symbol) => Ok(*symbol),
            None => Err(Malformed::Symbol {
                number,
                n_symbols: self.symbols.len(),
            }
            .into()),
        }
    }
}

/// Returns a part of a span, by its range in the span.
fn part(span: Span, range: &Range<usize>) -> Span {
    let start = span.start as usize;
    Span::new(start + range.start, start + range.end)
}

/// Returns the range of bytes from the first difference to the last one, of two encodings of the
/// same size. It begins and ends between varints in both, unless the last varint is truncated.
#[inline]
fn differing(old: &[u8], new: &[u8]) -> Option<Range<usize>> {
    let mut start = first_difference(old, new)?;
    let mut end = last_difference(old, new)? + 1;
    while start > 0 && new[start - 1] >= 0x80 {
        start -= 1;
    }
    while end < new.len() && (old[end - 1] >= 0x80 || new[end - 1] >= 0x80) {
        end += 1;
    }
    Some(start..end)
}

#[inline]
fn first_difference(old: &[u8], new: &[u8]) -> Option<usize> {
    let (old_words, old_rest) = old.as_chunks::<8>();
    let (new_words, new_rest) = new.as_chunks::<8>();
    for (idx, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let difference = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if difference != 0 {
            return Some(8 * idx + difference.trailing_zeros() as usize / 8);
        }
    }
    let in_rest = old_rest
        .iter()
        .zip(new_rest)
        .position(|(old, new)| old != new);
    in_rest.map(|at| 8 * new_words.len() + at)
}

#[inline]
fn last_difference(old: &[u8], new: &[u8]) -> Option<usize> {
    let (old_rest, old_words) = old.as_rchunks::<8>();
    let (new_rest, new_words) = new.as_rchunks::<8>();
    for (idx, (old, new)) in old_words.iter().zip(new_words).enumerate().rev() {
        let difference = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if difference != 0 {
            return Some(new_rest.len() + 8 * idx + 7 - difference.leading_zeros() as usize / 8);
        }
    }
    old_rest
        .iter()
        .zip(new_rest)
        .rposition(|(old, new)| old != new)
}
