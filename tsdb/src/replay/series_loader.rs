//! Loads the series definitions of a log into the head of its shard. All series of the log belong
//! to that shard.
//!
//! A series is loaded as words: the id of its list of label names, then the symbols of its label
//! values. A loader keeps the words of the previous series, so it does not look up labels that the
//! log marks as repeated. The texts of a checkpoint are added to those of the head as they are read,
//! each once ([`Texts`](crate::wal::checkpoint::Texts)).

use crate::batch::SeriesRef;
use crate::error::Result;
use crate::head::Head;
use crate::index::SymbolId;
use crate::wal::checkpoint::CheckpointSeries;
use crate::wal::record::{DefinedLabel, Repeats};

/// Loads the series of a checkpoint, in order.
#[derive(Debug, Default)]
pub(super) struct CheckpointLoader {
    last: LastSeries,
    /// Symbol indexes of the previous series of the checkpoint.
    symbol_indexes: Vec<usize>,
}

/// Loads the series of segments, in order.
#[derive(Debug, Default)]
pub(super) struct SegmentLoader {
    last: LastSeries,
}

/// Words of the series that was loaded last.
#[derive(Debug)]
struct LastSeries {
    names: Vec<SymbolId>,
    /// The id of the list of label names if `has_shape`, then the symbols of the values.
    words: Vec<u32>,
    has_shape: bool,
}

impl CheckpointLoader {
    /// Loads a series, whose texts are those of the head, and returns its slot.
    ///
    /// # Errors
    /// The errors of [`Head::load`].
    pub(super) fn load(&mut self, head: &mut Head, series: CheckpointSeries<'_>) -> Result<u32> {
        let symbol_indexes = series.symbol_indexes();
        for (i, &idx) in symbol_indexes.iter().enumerate() {
            if self.symbol_indexes.get(i) != Some(&idx) {
                let (name, value) = series.pair(idx);
                self.last.set(i, name, value);
            }
        }
        self.symbol_indexes.clear();
        self.symbol_indexes.extend_from_slice(symbol_indexes);
        self.last.load(head, symbol_indexes.len(), series.series)
    }
}

impl SegmentLoader {
    /// Loads a series and returns its slot.
    ///
    /// # Errors
    /// The errors of [`Head::load_symbol`] and [`Head::load`].
    pub(super) fn load(
        &mut self,
        head: &mut Head,
        series: SeriesRef,
        labels: &[DefinedLabel<'_>],
    ) -> Result<u32> {
        for (i, label) in labels.iter().enumerate() {
            let name = match label.repeats {
                Repeats::Label => continue,
                Repeats::Name => self.last.names[i],
                Repeats::Nothing => head.load_symbol(label.name)?,
            };
            self.last.set(i, name, head.load_symbol(label.value)?);
        }
        self.last.load(head, labels.len(), series)
    }
}

impl LastSeries {
    fn set(&mut self, i: usize, name: SymbolId, value: SymbolId) {
        match self.names.get_mut(i) {
            Some(before) => {
                self.has_shape &= *before == name;
                *before = name;
                self.words[1 + i] = value.0;
            }
            None => {
                self.has_shape = false;
                self.names.push(name);
                self.words.push(value.0);
            }
        }
    }

    /// Loads the series that consists of the first `n_labels` labels.
    fn load(&mut self, head: &mut Head, n_labels: usize, series: SeriesRef) -> Result<u32> {
        self.has_shape &= self.names.len() == n_labels;
        if !self.has_shape {
            self.names.truncate(n_labels);
            self.words.truncate(1 + n_labels);
            self.words[0] = head.load_shape(&self.names)?;
            self.has_shape = true;
        }
        head.load(&self.words, series)
    }
}

impl Default for LastSeries {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            words: vec![0],
            has_shape: false,
        }
    }
}
