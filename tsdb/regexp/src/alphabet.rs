//! A reduced alphabet for an automaton: ASCII, and symbols for the other characters.
//!
//! Characters outside of ASCII that no part of the pattern distinguishes share a symbol of one
//! byte, from 0x80 on. So `\pL` is one transition instead of hundreds of states over UTF-8. An
//! automaton is about as large as Go's program, which works on characters.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, Hir, HirKind, Repetition};

use super::request::MatchRequest;

/// The first character outside of ASCII, and the first symbol.
const FIRST: u8 = 0x80;
/// Maximum number of symbols.
const SYMBOLS_MAX: usize = 128;
/// Maximum number of steps to compute an alphabet. Only absurd patterns need more. These patterns
/// work on UTF-8.
const STEPS_MAX: usize = 1 << 24;

/// A map from characters outside of ASCII to symbols.
#[derive(Debug)]
pub(crate) struct Alphabet {
    /// First characters of ranges and their symbols, ascending.
    ranges: Vec<(u32, u8)>,
}

/// Ranges of characters, ascending.
type Ranges = Vec<(u32, u32)>;

impl Alphabet {
    /// Returns the alphabet of a pattern. Returns `None` if the pattern distinguishes too many
    /// characters.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn of<R: MatchRequest>(
        hir: &Hir,
        request: Option<&R>,
    ) -> Result<Option<Self>, R::Error> {
        let mut sets = BTreeSet::new();
        collect(hir, request, &mut sets)?;
        let mut starts: Vec<u32> = sets
            .iter()
            .flatten()
            .flat_map(|&(first, last)| [first, last + 1])
            .collect();
        starts.push(FIRST.into());
        starts.sort_unstable();
        starts.dedup();
        if sets.len().saturating_mul(starts.len()) > STEPS_MAX {
            return Ok(None);
        }
        let mut symbols = vec![0; starts.len()];
        for set in &sets {
            request.map_or(Ok(()), R::check)?;
            let mut refined = HashMap::new();
            let mut ranges = set.iter().peekable();
            for (&start, symbol) in starts.iter().zip(&mut symbols) {
                while ranges.next_if(|(_, last)| *last < start).is_some() {}
                let is_member = ranges.peek().is_some_and(|(first, _)| *first <= start);
                let n_symbols = refined.len();
                *symbol = *refined.entry((*symbol, is_member)).or_insert(n_symbols);
            }
            if refined.len() > SYMBOLS_MAX {
                return Ok(None);
            }
        }
        let mut ranges: Vec<_> = starts
            .into_iter()
            .zip(symbols.into_iter().map(|symbol| FIRST + symbol as u8))
            .collect();
        ranges.dedup_by_key(|(_, symbol)| *symbol);
        Ok(Some(Self { ranges }))
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.ranges.capacity() * size_of::<(u32, u8)>()
    }

    /// Returns the symbols of a text. Uses `buffer` if the text is not ASCII.
    pub(crate) fn encode<'t>(&self, text: &'t str, buffer: &'t mut Vec<u8>) -> &'t [u8] {
        // Fast path: ASCII.
        if text.is_ascii() {
            return text.as_bytes();
        }
        buffer.clear();
        buffer.extend(text.chars().map(|c| self.symbol(c)));
        buffer
    }

    fn symbol(&self, c: char) -> u8 {
        if c.is_ascii() {
            c as u8
        } else {
            self.ranges[self.position(c.into())].1
        }
    }

    /// Returns the position of the range that includes a character.
    fn position(&self, c: u32) -> usize {
        self.ranges.partition_point(|(first, _)| *first <= c) - 1
    }

    /// Translates a tree over characters to one over symbols.
    pub(crate) fn translate(&self, hir: &Hir) -> Hir {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => hir.clone(),
            HirKind::Literal(literal) => {
                let text = String::from_utf8_lossy(&literal.0);
                Hir::literal(text.chars().map(|c| self.symbol(c)).collect::<Vec<_>>())
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class
                    .iter()
                    .flat_map(|range| self.class_of(u32::from(range.start())..=range.end().into()));
                Hir::class(Class::Bytes(ClassBytes::new(ranges)))
            }
            HirKind::Repetition(repetition) => Hir::repetition(Repetition {
                sub: Box::new(self.translate(&repetition.sub)),
                ..*repetition
            }),
            HirKind::Capture(capture) => Hir::capture(Capture {
                index: capture.index,
                name: None,
                sub: Box::new(self.translate(&capture.sub)),
            }),
            HirKind::Concat(parts) => Hir::concat(self.translate_all(parts)),
            HirKind::Alternation(parts) => Hir::alternation(self.translate_all(parts)),
        }
    }

    fn translate_all(&self, parts: &[Hir]) -> Vec<Hir> {
        parts.iter().map(|part| self.translate(part)).collect()
    }

    fn class_of(&self, chars: RangeInclusive<u32>) -> Vec<ClassBytesRange> {
        let (first, last) = chars.into_inner();
        let ascii =
            (first < FIRST.into()).then(|| ClassBytesRange::new(first as u8, last.min(0x7f) as u8));
        let others = if last < FIRST.into() {
            &[]
        } else {
            &self.ranges[self.position(first.max(FIRST.into()))..=self.position(last)]
        };
        let mut is_member = [false; 256];
        for (_, symbol) in others {
            is_member[usize::from(*symbol)] = true;
        }
        let symbols = (0..=u8::MAX).filter(|symbol| is_member[usize::from(*symbol)]);
        ascii
            .into_iter()
            .chain(symbols.map(|symbol| ClassBytesRange::new(symbol, symbol)))
            .collect()
    }
}

/// Collects the sets of characters outside of ASCII that a pattern distinguishes.
fn collect<R: MatchRequest>(
    hir: &Hir,
    request: Option<&R>,
    sets: &mut BTreeSet<Ranges>,
) -> Result<(), R::Error> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => {}
        HirKind::Literal(literal) => {
            let text = String::from_utf8_lossy(&literal.0);
            sets.extend(
                text.chars()
                    .filter(|c| !c.is_ascii())
                    .map(|c| vec![(c.into(), c.into())]),
            );
        }
        HirKind::Class(Class::Unicode(class)) => {
            request.map_or(Ok(()), R::check)?;
            let ranges = class.iter().map(|range| {
                (
                    u32::from(range.start()).max(FIRST.into()),
                    u32::from(range.end()),
                )
            });
            sets.insert(ranges.filter(|(first, last)| first <= last).collect());
        }
        HirKind::Repetition(repetition) => collect(&repetition.sub, request, sets)?,
        HirKind::Capture(capture) => collect(&capture.sub, request, sets)?,
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            for part in parts {
                collect(part, request, sets)?;
            }
        }
    }
    Ok(())
}
