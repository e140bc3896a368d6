//! Writes a block, series by series.
//!
//! The file is named `<id>.block.tmp` until it is complete and synced, and then gets its final name. Memory holds a
//! group, a page of timestamp columns, the hashes of recent timestamp columns, and the buffers of the index. It does
//! not depend on the number of series.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Symbol;
use super::directory::DirectoryWriter;
use super::footer::{Footer, header, trailer};
use super::group::{GroupBuilder, SliceKey};
use super::index::IndexWriter;
use super::meta::{BlockMeta, BlockOrigin};
use super::page::PageWriter;
use super::rows::SERIES_SAMPLES_MAX;
use super::rows::histograms::{RowSamples, n_fitting};
use super::timestamps::columns::TimestampColumnWriter;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::sample::{SampleColumns, TimeRange, start_timestamps};

/// Maximum time range of a page of rows: a query for an hour reads a third of a day, not all of it.
const SLICE_MS: u64 = 8 * 3600 * 1000;
/// Memory of the index writer before it spills to files.
const INDEX_MEMORY_MAX: usize = 64 << 20;

/// Writes a block. After an error it must be dropped. If it is dropped before [`BlockWriter::finish`], it removes its
/// files.
pub(crate) struct BlockWriter {
    dir: PathBuf,
    path: PathBuf,
    origin: BlockOrigin,
    pages: PageWriter,
    index: IndexWriter,
    index_size: u64,
    timestamp_columns: TimestampColumnWriter,
    group: GroupBuilder,
    groups: DirectoryWriter,
    spans: Vec<(SliceKey, Range<usize>)>,
    n_series: u32,
    n_samples: u64,
    range: Option<TimeRange>,
    values_size: u64,
    /// Size of the maps, which count as timestamps.
    maps_size: u64,
    unfinished: Unfinished,
}

/// A file that is removed on drop unless it was finished.
struct Unfinished {
    fs: Arc<dyn Fs>,
    path: Option<PathBuf>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = self.fs.remove(path)
        {
            tracing::warn!(?path, %error, "cannot remove an unfinished block; it is removed at the next start");
        }
    }
}

impl BlockWriter {
    /// Creates a block in `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]; `AlreadyExists` if a block with that id, finished or not, exists.
    pub(crate) fn create(fs: Arc<dyn Fs>, dir: &Path, origin: BlockOrigin) -> Result<Self> {
        let path = dir.join(origin.id.file_name());
        let path_tmp = path.with_extension("block.tmp");
        if fs.open(&path).is_ok() {
            return Err(Error::io("create", &path)(std::io::ErrorKind::AlreadyExists.into()));
        }
        let file = fs.create(&path_tmp).map_err(Error::io("create", &path_tmp))?;
        let unfinished = Unfinished { fs: Arc::clone(&fs), path: Some(path_tmp.clone()) };
        let mut pages = PageWriter::new(&path_tmp, file)?;
        pages.write_raw(&header())?;
        Ok(Self {
            index: IndexWriter::new(fs, &path.with_extension(""), INDEX_MEMORY_MAX),
            index_size: 0,
            timestamp_columns: TimestampColumnWriter::new(&path_tmp)?,
            group: GroupBuilder::default(),
            groups: DirectoryWriter::default(),
            spans: Vec::new(),
            n_series: 0,
            n_samples: 0,
            range: None,
            values_size: 0,
            maps_size: 0,
            unfinished,
            dir: dir.to_owned(),
            path,
            origin,
            pages,
        })
    }

    /// Adds a label name and value, in ascending order; all symbols come before the first series.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the block has too many.
    pub(crate) fn symbol(&mut self, name: &str, value: &str) -> Result<Symbol> {
        assert!(self.n_series == 0, "symbols come before series");
        let start = self.pages.size();
        let symbol = self.index.symbol(&mut self.pages, name, value)?;
        self.index_size += self.pages.size() - start;
        Ok(symbol)
    }

    /// Adds a series with its samples.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the block has too many.
    ///
    /// # Panics
    /// If the labels are not above those of the last series, there are no samples, timestamps do not ascend, or they
    /// lie outside the block's window.
    pub(crate) fn series(&mut self, labels: &[Symbol], samples: &SampleColumns) -> Result<()> {
        let range = self.check(samples);
        let start = self.pages.size();
        self.index.series(&mut self.pages, labels)?;
        self.index_size += self.pages.size() - start;
        self.slice(samples);
        // A series with more samples than fit a page gets a group of its own.
        let is_alone = self.spans.iter().any(|(key, _)| key.run > 0);
        if is_alone {
            self.end_group()?;
        }
        for (key, span) in &self.spans {
            let times_ms = &samples.timestamps_ms[span.clone()];
            let timestamp_column = self.timestamp_columns.put(&mut self.pages, times_ms)?;
            let starts = start_timestamps::slice(&samples.starts_ms, span.clone());
            self.group.push(*key, timestamp_column, times_ms, RowSamples::of(samples, span.clone()), &starts);
        }
        self.group.end_series();
        self.count(samples.len(), range);
        if is_alone || self.group.is_full() { self.end_group() } else { Ok(()) }
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.pages.size()
    }

    /// Completes and syncs the file and gives it its final name.
    ///
    /// # Errors
    /// [`Error::Io`]; no file exists then.
    ///
    /// # Panics
    /// If the block has no series.
    pub(crate) fn finish(mut self) -> Result<BlockMeta> {
        self.end_group()?;
        let range = self.range.expect("a block has a series: the caller drops a writer without series");
        let groups = self.groups.finish(&mut self.pages)?;
        let (timelines_size, timestamp_columns) = self.timestamp_columns.finish(&mut self.pages)?;
        let start = self.pages.size();
        let index = self.index.finish(&mut self.pages)?;
        let meta = BlockMeta {
            origin: self.origin,
            range,
            n_series: self.n_series.into(),
            n_samples: self.n_samples,
            size: 0,
            values_size: self.values_size,
            timestamps_size: self.maps_size + timelines_size,
            index_size: self.index_size + self.pages.size() - start,
        };
        let mut footer = Footer { meta, groups, timestamp_columns, index };
        let page = self.pages.write(&footer.encode())?;
        self.pages.write_raw(&trailer(page))?;
        self.pages.sync()?;
        footer.meta.size = self.pages.size();
        self.unfinished.publish(&self.path, &self.dir)?;
        Ok(footer.meta)
    }

    /// Checks the preconditions and returns the time range of the samples.
    fn check(&self, samples: &SampleColumns) -> TimeRange {
        let times_ms = &samples.timestamps_ms[..];
        assert!(times_ms.len() == samples.values.len(), "a value per timestamp");
        assert!(times_ms.is_sorted_by(|a, b| a < b), "timestamps ascend");
        let (&[start_ms, .., end_ms] | &[start_ms @ end_ms]) = times_ms else { panic!("a series has samples") };
        let range = TimeRange { start_ms, end_ms };
        let TimeRange { start_ms: from_ms, end_ms: to_ms } = self.origin.window;
        assert!(from_ms <= start_ms && end_ms <= to_ms, "samples lie inside the block's window");
        range
    }

    /// Cuts a series into slices of time, and those into runs that fit a page.
    fn slice(&mut self, samples: &SampleColumns) {
        let times_ms = &samples.timestamps_ms[..];
        let window_ms = self.origin.window.start_ms;
        let slice_of = |time_ms: i64| time_ms.abs_diff(window_ms) / SLICE_MS;
        self.spans.clear();
        let mut at = 0;
        while at < times_ms.len() {
            let slice = slice_of(times_ms[at]);
            let end = at + times_ms[at..].partition_point(|&time_ms| slice_of(time_ms) == slice);
            let mut run = 0;
            while at < end {
                let fitting = RowSamples::of(samples, at..end.min(at + SERIES_SAMPLES_MAX));
                let run_end = at + n_fitting(fitting);
                self.spans.push((SliceKey { slice, run }, at..run_end));
                (at, run) = (run_end, run + 1);
            }
        }
    }

    fn count(&mut self, n_samples: usize, range: TimeRange) {
        // The index, which has counted the series, bounds their number.
        self.n_series += 1;
        self.n_samples += n_samples as u64;
        let all = self.range.get_or_insert(range);
        all.start_ms = all.start_ms.min(range.start_ms);
        all.end_ms = all.end_ms.max(range.end_ms);
    }

    fn end_group(&mut self) -> Result<()> {
        let n_series = self.group.n_series();
        if n_series == 0 {
            return Ok(());
        }
        let (map, rows) = self.group.write(&mut self.pages)?;
        self.maps_size += u64::from(map.size);
        self.values_size += rows.iter().map(|rows| u64::from(rows.page.size)).sum::<u64>();
        self.groups.group(&mut self.pages, n_series, map, &rows)
    }
}

impl Unfinished {
    /// Gives the file its final name. Until the directory is synced it counts as unfinished, under either name.
    fn publish(&mut self, path: &Path, dir: &Path) -> Result<()> {
        let path_tmp = self.path.as_ref().expect("published once");
        self.fs.rename(path_tmp, path).map_err(Error::io("rename", path_tmp))?;
        self.path = Some(path.to_owned());
        self.fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        self.path = None;
        Ok(())
    }
}
