//! The series of a checkpoint, up to 8,192 per frame.
//!
//! ```text
//! n         varint, at most 8,192; then four columns
//! refs      n zigzags: difference to the previous one, to 0 for the first, wrapping
//! lasts     n zigzags: the last timestamps, likewise; the lowest i64 stands for "no sample"
//! counts    n varints: the number of labels
//! symbols   per label a zigzag: its symbol less the symbol at the same position in the previous series (0 if none)
//! ```

use varve_codec::varint::{put_i64, put_u64, take_i64, take_u64};
use varve_model::Labels;
use varve_model::labels::{LABELS_SIZE_MAX, LabelsBuilder};

use super::symbols::{SymbolWriter, Symbols};
use crate::batch::SeriesRef;
use crate::index::Pair;

/// Maximum series of a frame.
pub(super) const FRAME_SERIES_MAX: usize = 8192;

/// Encoder of the series of a frame.
#[derive(Debug, Default)]
pub(super) struct SeriesWriter {
    n_series: u64,
    refs: Vec<u8>,
    lasts: Vec<u8>,
    counts: Vec<u8>,
    symbols: Vec<u8>,
    previous: Previous,
    /// The labels of the series that is being added.
    current: Vec<(Pair, u64)>,
}

/// The previous series of the frame.
#[derive(Debug, Default)]
struct Previous {
    series: u64,
    last_ms: i64,
    /// The labels with their symbols.
    labels: Vec<(Pair, u64)>,
}

impl SeriesWriter {
    /// Returns the number of series.
    pub(super) fn len(&self) -> usize {
        self.n_series as usize
    }

    /// Returns the encoded size of the labels in bytes. The number of series bounds the size of the
    /// other columns.
    pub(super) fn size(&self) -> usize {
        self.symbols.len()
    }

    /// Appends a series. `text` returns the name and value of a label. Returns `None` if there are
    /// too many symbols.
    pub(super) fn add<'a>(
        &mut self,
        symbols: &mut SymbolWriter,
        series: SeriesRef,
        last_ms: i64,
        labels: impl Iterator<Item = Pair>,
        text: impl Fn(Pair) -> (&'a str, &'a str),
    ) -> Option<()> {
        self.current.clear();
        for (i, label) in labels.enumerate() {
            let previous = self.previous.labels.get(i).copied();
            let symbol = match previous {
                // Fast path: same label as in the previous series.
                Some((same, symbol)) if same == label => symbol,
                _ => symbols.number(label, &text)?,
            };
            put_i64(
                &mut self.symbols,
                symbol as i64 - previous.map_or(0, |(_, symbol)| symbol as i64),
            );
            self.current.push((label, symbol));
        }
        put_i64(
            &mut self.refs,
            series.0.wrapping_sub(self.previous.series) as i64,
        );
        put_i64(&mut self.lasts, last_ms.wrapping_sub(self.previous.last_ms));
        put_u64(&mut self.counts, self.current.len() as u64);
        self.n_series += 1;
        std::mem::swap(&mut self.previous.labels, &mut self.current);
        self.previous.series = series.0;
        self.previous.last_ms = last_ms;
        Some(())
    }

    /// Moves the series to `dst` as the payload of a record. Appends nothing if there are none.
    pub(super) fn take(&mut self, dst: &mut Vec<u8>) {
        if self.n_series == 0 {
            return;
        }
        put_u64(dst, std::mem::take(&mut self.n_series));
        for column in [
            &mut self.refs,
            &mut self.lasts,
            &mut self.counts,
            &mut self.symbols,
        ] {
            dst.append(column);
        }
        self.previous = Previous::default();
    }
}

/// A series of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointSeries<'a> {
    pub(crate) series: SeriesRef,
    /// Timestamp of the last sample of the series; `i64::MIN` if there is none.
    pub(crate) last_ms: i64,
    /// Indexes of the labels among the symbols of the checkpoint. The labels are a valid label set.
    symbol_indexes: &'a [usize],
    symbols: &'a Symbols,
}

impl<'a> CheckpointSeries<'a> {
    /// Returns the indexes of the labels among the symbols of the checkpoint, in order of label
    /// names.
    pub(crate) fn symbol_indexes(self) -> &'a [usize] {
        self.symbol_indexes
    }

    /// Returns the label with a symbol index, by the ids of its name and value in the texts of the
    /// checkpoint.
    pub(crate) fn pair(self, idx: usize) -> Pair {
        self.symbols.pair(idx)
    }

    /// Returns the labels of the series.
    pub(crate) fn labels(self) -> Labels {
        let symbols = || {
            let indexes = self.symbol_indexes.iter();
            indexes.map(|&idx| (self.symbols.name(idx), self.symbols.value(idx)))
        };
        let mut builder =
            LabelsBuilder::with_capacity(symbols().map(|(n, v)| n.len() + v.len() + 4).sum());
        for (name, value) in symbols() {
            builder.push(name, value);
        }
        builder.finish()
    }
}

/// Decodes the series of a frame and passes them to `each`: `None` for a series whose symbols are
/// lost. Returns `None` if the frame does not decode.
pub(super) fn decode<E>(
    mut src: &[u8],
    symbols: &Symbols,
    mut each: impl FnMut(Option<CheckpointSeries<'_>>) -> Result<(), E>,
) -> Option<Result<(), E>> {
    let src = &mut src;
    let n_series = usize::try_from(take_u64(src)?)
        .ok()
        .filter(|&n| n <= FRAME_SERIES_MAX)?;
    let refs = take_column(src, n_series)?;
    let lasts = take_column(src, n_series)?;
    let counts = (0..n_series)
        .map(|_| usize::try_from(take_u64(src)?).ok())
        .collect::<Option<Vec<_>>>()?;
    let mut labels = LabelSymbols::default();
    let mut result = Ok(());
    for i in 0..n_series {
        let is_whole = labels.step(src, counts[i], symbols)?;
        if result.is_ok() {
            let symbol_indexes = &labels.indexes;
            let found = CheckpointSeries {
                series: SeriesRef(refs[i] as u64),
                last_ms: lasts[i],
                symbol_indexes,
                symbols,
            };
            result = each(is_whole.then_some(found));
        }
    }
    src.is_empty().then_some(result)
}

/// The labels of a series. Labels that the next series repeats are not checked again.
#[derive(Debug, Default)]
struct LabelSymbols {
    numbers: Vec<u64>,
    /// Indexes among the symbols; [`MISSING`] for a lost symbol.
    indexes: Vec<usize>,
    n_lost: usize,
    /// Total bytes of the names and values that are not lost.
    size: usize,
    /// `true` if the names are known to be sorted.
    is_sorted: bool,
}

/// The index of a symbol whose frame is lost.
const MISSING: usize = usize::MAX;

impl LabelSymbols {
    /// Decodes the next series, which has `count` labels. Returns `Some(false)` if a label is lost,
    /// and `None` if the labels are not a valid label set.
    fn step(&mut self, src: &mut &[u8], count: usize, symbols: &Symbols) -> Option<bool> {
        while self.numbers.len() > count {
            self.numbers.pop();
            let idx = self.indexes.pop()?;
            self.forget(idx, symbols);
        }
        for i in 0..count {
            let step = take_i64(src)?;
            match self.numbers.get(i) {
                // Fast path: same label as in the previous series.
                Some(_) if step == 0 => {}
                Some(before) => {
                    let number = before.wrapping_add_signed(step);
                    let idx = symbols.index(number).unwrap_or(MISSING);
                    let before = self.indexes[i];
                    self.numbers[i] = number;
                    self.indexes[i] = idx;
                    self.forget(before, symbols);
                    self.is_sorted &=
                        before != MISSING && idx != MISSING && symbols.has_name_of(idx, before);
                    self.note(idx, symbols)?;
                }
                None => {
                    let number = step as u64;
                    let idx = symbols.index(step as u64).unwrap_or(MISSING);
                    self.numbers.push(number);
                    self.indexes.push(idx);
                    self.is_sorted = false;
                    self.note(idx, symbols)?;
                }
            }
        }
        if self.n_lost > 0 {
            return Some(false);
        }
        if !self.is_sorted {
            self.is_sorted = self
                .indexes
                .is_sorted_by(|&a, &b| symbols.name(a) < symbols.name(b));
        }
        (self.is_sorted && self.size <= LABELS_SIZE_MAX).then_some(true)
    }

    /// Counts a label. Returns `None` if its name or value is empty.
    fn note(&mut self, idx: usize, symbols: &Symbols) -> Option<()> {
        if idx == MISSING {
            self.n_lost += 1;
            return Some(());
        }
        let name = symbols.name(idx);
        let value = symbols.value(idx);
        self.size += name.len() + value.len();
        (!name.is_empty() && !value.is_empty()).then_some(())
    }

    fn forget(&mut self, idx: usize, symbols: &Symbols) {
        if idx == MISSING {
            self.n_lost -= 1;
        } else {
            self.size -= symbols.name(idx).len() + symbols.value(idx).len();
        }
    }
}

fn take_column(src: &mut &[u8], n: usize) -> Option<Vec<i64>> {
    // Nothing is reserved in advance: the number is not trusted.
    let mut column = Vec::new();
    let mut value = 0_i64;
    for _ in 0..n {
        value = value.wrapping_add(take_i64(src)?);
        column.push(value);
    }
    Some(column)
}
