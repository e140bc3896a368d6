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
use crate::db::LABELS_SIZE_MAX;
use crate::head::SeriesRef;
use crate::labels::{Labels, LabelsBuilder};
use crate::varint::{put_i64, put_u64, take_i64, take_u64};

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
    /// Returns its labels in order of names, each with its place among the symbols of the checkpoint.
    pub(in crate::wal) fn symbols(self) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
        self.places.iter().map(move |&place| (place, self.symbols.name(place), self.symbols.value(place)))
    }

    /// Returns its labels.
    pub(in crate::wal) fn labels(self) -> Labels {
        let mut builder = LabelsBuilder::with_capacity(self.symbols().map(|(_, n, v)| n.len() + v.len() + 4).sum());
        self.symbols().for_each(|(_, name, value)| builder.push(name, value));
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
    // Symbols of the series before, at first: those of the one that is being decoded take their places.
    let (mut numbers, mut places) = (Vec::<u64>::new(), Vec::new());
    let mut refused = Ok(());
    for i in 0..n_series {
        for at in 0..counts[i] {
            let before = numbers.get(at).copied().unwrap_or(0);
            let number = before.wrapping_add_signed(take_i64(src)?);
            if at < numbers.len() { numbers[at] = number } else { numbers.push(number) }
        }
        numbers.truncate(counts[i]);
        if refused.is_ok() {
            let is_whole = find_labels(&numbers, symbols, &mut places)?;
            let found = Described { series: SeriesRef(refs[i] as u64), last_ms: lasts[i], places: &places, symbols };
            refused = each(is_whole.then_some(found));
        }
    }
    src.is_empty().then_some(refused)
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

/// Finds the places of labels; false if a symbol was lost, `None` if they are no label set.
fn find_labels(numbers: &[u64], symbols: &Symbols, places: &mut Vec<usize>) -> Option<bool> {
    places.clear();
    let (mut size, mut name_before) = (0, "");
    for &number in numbers {
        let Some(place) = symbols.place(number) else { return Some(false) };
        let name = symbols.name(place);
        if name <= name_before || symbols.value(place).is_empty() {
            return None;
        }
        size += name.len() + symbols.value(place).len();
        name_before = name;
        places.push(place);
    }
    (size <= LABELS_SIZE_MAX).then_some(true)
}
