//! The series of a checkpoint, some thousands a frame.
//!
//! ```text
//! n         varint, at most 8,192; then four columns
//! refs      n zigzags: each less the one before, the first less 0, wrapping
//! lasts     n zigzags: likewise; the least i64 stands for "no sample"
//! counts    n varints: the number of labels
//! symbols   of each label a zigzag: its symbol less that of the label at the same place in the series before (0 if none)
//! ```

use super::symbols::{SymbolWriter, Symbols};
use crate::chunk::varint::{put_i64, put_u64, take_i64, take_u64};
use crate::head::SeriesRef;
use crate::labels::{LABELS_SIZE_MAX, Labels, LabelsBuilder};

/// Most series of a frame.
pub(super) const FRAME_SERIES_MAX: usize = 8192;

/// Gathers the series of a frame.
#[derive(Debug, Default)]
pub(super) struct SeriesWriter {
    n_series: u64,
    refs: Vec<u8>,
    lasts: Vec<u8>,
    counts: Vec<u8>,
    symbols: Vec<u8>,
    before: Before,
    /// The symbols of the series that is being added.
    current: Vec<u64>,
}

/// The series before, in the frame.
#[derive(Debug, Default)]
struct Before {
    series: u64,
    last_ms: i64,
    labels: Labels,
    symbols: Vec<u64>,
}

impl SeriesWriter {
    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.n_series as usize
    }

    /// Adds a series; `None` if there are too many symbols.
    pub(super) fn add(
        &mut self,
        symbols: &mut SymbolWriter,
        series: SeriesRef,
        labels: Labels,
        last_ms: i64,
    ) -> Option<()> {
        self.current.clear();
        let mut before = self.before.labels.iter();
        for (i, (name, value)) in labels.iter().enumerate() {
            let symbol_before = self.before.symbols.get(i).copied().unwrap_or(0);
            let same = before.next() == Some((name, value));
            let symbol = if same { symbol_before } else { symbols.number(name, value)? };
            put_i64(&mut self.symbols, symbol as i64 - symbol_before as i64);
            self.current.push(symbol);
        }
        put_i64(&mut self.refs, series.0.wrapping_sub(self.before.series) as i64);
        put_i64(&mut self.lasts, last_ms.wrapping_sub(self.before.last_ms));
        put_u64(&mut self.counts, self.current.len() as u64);
        self.n_series += 1;
        std::mem::swap(&mut self.before.symbols, &mut self.current);
        (self.before.series, self.before.last_ms, self.before.labels) = (series.0, last_ms, labels);
        Some(())
    }

    /// Moves the series to `dst` as a record's payload; nothing if there are none.
    pub(super) fn take(&mut self, dst: &mut Vec<u8>) {
        if self.n_series == 0 {
            return;
        }
        put_u64(dst, std::mem::take(&mut self.n_series));
        for column in [&mut self.refs, &mut self.lasts, &mut self.counts, &mut self.symbols] {
            dst.append(column);
        }
        self.before = Before::default();
    }
}

/// A series as a checkpoint has it.
#[derive(Debug, Clone, Copy)]
pub(in crate::wal) struct Described<'a> {
    pub(in crate::wal) series: SeriesRef,
    /// The time of its last sample, `i64::MIN` if there is none.
    pub(in crate::wal) last_ms: i64,
    /// Places of its labels among the symbols, which are a label set.
    places: &'a [usize],
    symbols: &'a Symbols,
}

impl<'a> Described<'a> {
    /// Returns the places of its labels among the symbols of the checkpoint, in order of names.
    pub(in crate::wal) fn places(self) -> &'a [usize] {
        self.places
    }

    /// Returns the label at a place.
    pub(in crate::wal) fn symbol(self, place: usize) -> (&'a str, &'a str) {
        (self.symbols.name(place), self.symbols.value(place))
    }

    /// Returns its labels.
    pub(in crate::wal) fn labels(self) -> Labels {
        let symbols = || self.places.iter().map(|&place| self.symbol(place));
        let mut builder = LabelsBuilder::with_capacity(symbols().map(|(n, v)| n.len() + v.len() + 4).sum());
        symbols().for_each(|(name, value)| builder.push(name, value));
        builder.finish()
    }
}

/// Decodes the series of a frame: `None` for one whose symbols were lost. Returns `None` if the frame does not decode.
pub(super) fn decode<E>(
    mut src: &[u8],
    symbols: &Symbols,
    mut each: impl FnMut(Option<Described<'_>>) -> Result<(), E>,
) -> Option<Result<(), E>> {
    let src = &mut src;
    let n_series = usize::try_from(take_u64(src)?).ok().filter(|&n| n <= FRAME_SERIES_MAX)?;
    let (refs, lasts) = (take_column(src, n_series)?, take_column(src, n_series)?);
    let counts = (0..n_series).map(|_| usize::try_from(take_u64(src)?).ok()).collect::<Option<Vec<_>>>()?;
    let (mut labels, mut refused) = (LabelPlaces::default(), Ok(()));
    for i in 0..n_series {
        let is_whole = labels.step(src, counts[i], symbols)?;
        if refused.is_ok() {
            let places = &labels.places;
            let found = Described { series: SeriesRef(refs[i] as u64), last_ms: lasts[i], places, symbols };
            refused = each(is_whole.then_some(found));
        }
    }
    src.is_empty().then_some(refused)
}

/// The labels of a series, from which those of the next one follow: what is the same there needs no second look.
#[derive(Debug, Default)]
struct LabelPlaces {
    numbers: Vec<u64>,
    /// Where they are among the symbols; [`LOST`] for those that were lost.
    places: Vec<usize>,
    n_lost: usize,
    /// Bytes of the names and values that are there.
    size: usize,
    /// The names are known to ascend.
    ascend: bool,
}

/// The place of a symbol that was lost with its frame.
const LOST: usize = usize::MAX;

impl LabelPlaces {
    /// Takes the next series, which has `count` labels; false if one of them was lost, `None` if they are no label set.
    fn step(&mut self, src: &mut &[u8], count: usize, symbols: &Symbols) -> Option<bool> {
        while self.numbers.len() > count {
            self.numbers.pop();
            let place = self.places.pop()?;
            self.forget(place, symbols);
        }
        for at in 0..count {
            let step = take_i64(src)?;
            match self.numbers.get(at) {
                // Fast path: the label of the series before.
                Some(_) if step == 0 => {}
                Some(before) => {
                    let number = before.wrapping_add_signed(step);
                    let (place, before) = (symbols.place(number).unwrap_or(LOST), self.places[at]);
                    (self.numbers[at], self.places[at]) = (number, place);
                    self.forget(before, symbols);
                    self.ascend &= before != LOST && place != LOST && symbols.has_name_of(place, before);
                    self.note(place, symbols)?;
                }
                None => {
                    let (number, place) = (step as u64, symbols.place(step as u64).unwrap_or(LOST));
                    self.numbers.push(number);
                    self.places.push(place);
                    self.ascend = false;
                    self.note(place, symbols)?;
                }
            }
        }
        if self.n_lost > 0 {
            return Some(false);
        }
        if !self.ascend {
            self.ascend = self.places.is_sorted_by(|&a, &b| symbols.name(a) < symbols.name(b));
        }
        (self.ascend && self.size <= LABELS_SIZE_MAX).then_some(true)
    }

    /// Counts a label; `None` if none has it.
    fn note(&mut self, place: usize, symbols: &Symbols) -> Option<()> {
        if place == LOST {
            self.n_lost += 1;
            return Some(());
        }
        let (name, value) = (symbols.name(place), symbols.value(place));
        self.size += name.len() + value.len();
        (!name.is_empty() && !value.is_empty()).then_some(())
    }

    fn forget(&mut self, place: usize, symbols: &Symbols) {
        if place == LOST {
            self.n_lost -= 1;
        } else {
            self.size -= symbols.name(place).len() + symbols.value(place).len();
        }
    }
}

fn take_column(src: &mut &[u8], n: usize) -> Option<Vec<i64>> {
    let mut value = 0_i64;
    (0..n)
        .map(|_| {
            take_i64(src).map(|step| {
                value = value.wrapping_add(step);
                value
            })
        })
        .collect()
}
