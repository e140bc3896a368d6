//! Writes blocks for [`Db::import`](crate::Db::import).
//!
//! Used by `varve-prometheus`: it writes blocks directly to a directory, from which the store
//! imports them later. Any thread encodes series in an [`ImportBatch`]; one adds the batches in
//! order.
//!
//! Crash: an unfinished block has a temporary name. The next [`ImportWriter::create`] with the same
//! number removes it.

use std::path::Path;
use std::sync::Arc;

use varve_env::Fs;
use varve_model::SampleColumns;

use crate::block::{BlockId, BlockOrigin, BlockWriter, GROUP_SERIES_MAX, SeriesBatch, Symbol};
use crate::compact::window_of;
use crate::error::{Error, Result};

/// Writes one block, which covers one window of two hours.
pub struct ImportWriter<'a> {
    writer: BlockWriter,
    /// Labels and their symbols, in ascending order of names and values.
    symbols: Vec<((&'a str, &'a str), Symbol)>,
    n_samples: u64,
}

impl<'a> ImportWriter<'a> {
    /// Creates block `number` in the directory `dir`, for the window of two hours that contains
    /// `timestamp_ms`. `labels` are the names and values of all series that follow, ascending.
    ///
    /// If two blocks have a sample of a series at one timestamp, [`Db::import`](crate::Db::import)
    /// stores the sample of the block with the lower number.
    ///
    /// # Errors
    /// [`Error::Io`], with `AlreadyExists` if `dir` has a block of that number. [`Error::Limit`]
    /// for too many labels.
    ///
    /// # Panics
    /// If the labels do not ascend, or a name or value is empty.
    pub fn create(
        fs: &Arc<dyn Fs>,
        dir: &Path,
        number: u64,
        timestamp_ms: i64,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let id = BlockId(number);
        let window = window_of(timestamp_ms);
        let origin = BlockOrigin {
            id,
            window,
            level: 1,
            flushes: (number, number),
            sources: Vec::new(),
            deletions: 0,
        };
        remove_unfinished(&**fs, dir, id)?;
        let mut writer = BlockWriter::create(Arc::clone(fs), dir, origin)?;
        let mut symbols = Vec::new();
        for (name, value) in labels {
            symbols.push(((name, value), writer.symbol(name, value)?));
        }
        Ok(Self {
            writer,
            symbols,
            n_samples: 0,
        })
    }

    /// Appends a series. Skips a series without samples.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Limit`] if the block is full.
    ///
    /// # Panics
    /// If a label was not passed to [`ImportWriter::create`], the series are not in ascending order
    /// of labels, the timestamps do not ascend, or a timestamp lies outside the window.
    pub fn add(&mut self, labels: &[(&str, &str)], samples: &SampleColumns) -> Result<()> {
        if samples.is_empty() {
            return Ok(());
        }
        let mut symbols = Vec::with_capacity(labels.len());
        for pair in labels {
            let found = self.symbols.binary_search_by(|(other, _)| other.cmp(pair));
            let idx = found.expect("`create` got the labels of all series");
            symbols.push(self.symbols[idx].1);
        }
        self.n_samples += samples.len() as u64;
        self.writer.series(&symbols, samples)
    }

    /// Appends the series of a batch.
    ///
    /// # Errors
    /// The errors of [`ImportWriter::add`].
    ///
    /// # Panics
    /// If the batch is for another window, or the series are not in ascending order of labels.
    pub fn add_batch(&mut self, batch: ImportBatch) -> Result<()> {
        self.n_samples += batch.0.n_samples();
        self.writer.batch(batch.0)
    }

    /// Completes the block, makes it survive a power cut, and returns the number of its samples.
    /// Removes a block without samples.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<u64> {
        if self.n_samples > 0 {
            self.writer.finish()?;
        }
        Ok(self.n_samples)
    }
}

impl std::fmt::Debug for ImportWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportWriter")
            .field("n_samples", &self.n_samples)
            .finish_non_exhaustive()
    }
}

/// Consecutive series of a block of an [`ImportWriter`], encoded on any thread.
pub struct ImportBatch(SeriesBatch);

impl ImportBatch {
    /// Number of series of a batch that fills all pages of its block. Other numbers are allowed.
    pub const SERIES: usize = 2 * GROUP_SERIES_MAX;

    /// Creates an empty batch of the window of two hours that contains `timestamp_ms`.
    #[must_use]
    pub fn new(timestamp_ms: i64) -> Self {
        Self(SeriesBatch::new(window_of(timestamp_ms)))
    }

    /// Appends a series. `labels` are positions in the labels of [`ImportWriter::create`],
    /// ascending. Skips a series without samples.
    ///
    /// # Panics
    /// If the timestamps do not ascend, or lie outside the window.
    pub fn push(&mut self, labels: impl Iterator<Item = u32>, samples: &SampleColumns) {
        if !samples.is_empty() {
            // Symbols are numbered in the order in which they are written.
            self.0.push(labels.map(Symbol), samples);
        }
    }
}

impl std::fmt::Debug for ImportBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportBatch")
            .field("n_samples", &self.0.n_samples())
            .finish_non_exhaustive()
    }
}

fn remove_unfinished(fs: &dyn Fs, dir: &Path, id: BlockId) -> Result<()> {
    let prefix = id.file_name().trim_end_matches("block").to_owned();
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        if name.starts_with(&prefix) && BlockId::is_unfinished(&name) {
            let path = dir.join(name);
            fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}
