//! Writes a block, series by series.
//!
//! The file is named `<id>.block.tmp` until it is complete and synced, and then gets its final
//! name. The writer holds a group, a page of timestamp columns, the hashes of recent timestamp
//! columns, and the buffers of the index in memory. Its memory does not depend on the number of
//! series.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::Fs;
use varve_model::{SampleColumns, start_timestamps};

use super::directory::{DIRECTORY_PAGE_SIZE, put_group};
use super::footer::{Footer, header, trailer};
use super::group::GroupBuilder;
use super::index::IndexWriter;
use super::meta::{BlockMeta, BlockOrigin};
use super::page::{ListWriter, PageWriter};
use super::rows::histograms::RowSamples;
use super::series_batch::{BatchGroup, SeriesBatch};
use super::slice::{SliceSpan, check, slice};
use super::symbol::Symbol;
use super::temporary_file::TemporaryFile;
use super::timestamps::TimestampColumnWriter;
use crate::error::{Error, Result};

/// Memory that the index writer uses before it spills to files.
pub(crate) const INDEX_MEMORY_MAX: usize = 64 << 20;

/// Writes a block. After an error it must be dropped. Dropping it before [`BlockWriter::finish`]
/// removes its files.
pub(crate) struct BlockWriter {
    dir: PathBuf,
    /// Metadata of the block so far. The range is empty until the first series.
    meta: BlockMeta,
    pages: PageWriter,
    index: IndexWriter,
    timestamp_columns: TimestampColumnWriter,
    group: GroupBuilder,
    groups: ListWriter,
    spans: Vec<SliceSpan>,
    file: TemporaryFile,
}

impl BlockWriter {
    /// Creates a block in `dir`.
    ///
    /// # Errors
    /// [`Error::Io`]: `AlreadyExists` if a block with this id, finished or not, exists.
    pub(crate) fn create(fs: Arc<dyn Fs>, dir: &Path, origin: BlockOrigin) -> Result<Self> {
        let path = dir.join(origin.id.file_name());
        let (file, pages) = create_file(&fs, &path)?;
        Ok(Self {
            dir: dir.to_owned(),
            meta: BlockMeta::new(origin),
            pages,
            index: IndexWriter::new(fs, &path.with_extension(""), INDEX_MEMORY_MAX),
            timestamp_columns: TimestampColumnWriter::new(),
            group: GroupBuilder::default(),
            groups: ListWriter::new(DIRECTORY_PAGE_SIZE),
            spans: Vec::new(),
            file,
        })
    }

    /// Adds a label name and value. They ascend, and all symbols come before the first series.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the block has too many symbols.
    pub(crate) fn symbol(&mut self, name: &str, value: &str) -> Result<Symbol> {
        assert!(self.meta.n_series == 0, "symbols come before series");
        let start = self.pages.size();
        let symbol = self.index.symbol(&mut self.pages, name, value)?;
        self.meta.index_size += self.pages.size() - start;
        Ok(symbol)
    }

    /// Adds a series with its samples.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Limit`] if the block has too many series.
    ///
    /// # Panics
    /// If the labels are not above those of the previous series, or if there are no samples, or if
    /// the timestamps do not ascend within the window of the block.
    pub(crate) fn series(&mut self, labels: &[Symbol], samples: &SampleColumns) -> Result<()> {
        let window = self.meta.origin.window;
        let range = check(samples, window);
        self.index_series(labels)?;
        slice(samples, window, &mut self.spans);
        // A series with more samples than fit a page gets a group of its own.
        let is_alone = self.spans.iter().any(|(key, _)| key.run > 0);
        if is_alone {
            self.end_group()?;
        }
        for (key, span) in &self.spans {
            let times_ms = &samples.timestamps_ms[span.clone()];
            let timestamp_column = self.timestamp_columns.put(&mut self.pages, times_ms)?;
            let starts = start_timestamps::slice(&samples.starts_ms, span.clone());
            self.group.push(
                *key,
                timestamp_column,
                times_ms,
                RowSamples::of(samples, span.clone()),
                &starts,
            );
        }
        self.group.end_series();
        self.meta.range = self.meta.range.hull(range);
        self.meta.n_series += 1;
        self.meta.n_samples += samples.len() as u64;
        if is_alone || self.group.is_full() {
            self.end_group()
        } else {
            Ok(())
        }
    }

    /// Adds the series of a batch.
    ///
    /// # Errors
    /// The errors of [`BlockWriter::series`].
    ///
    /// # Panics
    /// If the labels are not above those of the previous series, or if the batch has another
    /// window.
    pub(crate) fn batch(&mut self, mut batch: SeriesBatch) -> Result<()> {
        assert!(
            batch.window == self.meta.origin.window,
            "a batch belongs to the window of its block"
        );
        batch.finish();
        self.end_group()?;
        self.meta.range = self.meta.range.hull(batch.range);
        self.meta.n_samples += batch.n_samples();
        for group in batch.groups {
            self.batch_group(group)?;
        }
        Ok(())
    }

    fn batch_group(&mut self, group: BatchGroup) -> Result<()> {
        let mut start = 0;
        for end in group.label_ends {
            self.index_series(&group.labels[start..end])?;
            self.meta.n_series += 1;
            start = end;
        }
        let mut columns = Vec::with_capacity(group.columns.timestamps_ms.len());
        for times_ms in &group.columns.timestamps_ms {
            columns.push(self.timestamp_columns.put(&mut self.pages, times_ms)?);
        }
        self.group = group.rows;
        self.group.renumber_columns(&columns);
        self.end_group()
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.pages.size()
    }

    /// Completes and syncs the file, and gives it its final name.
    ///
    /// # Errors
    /// [`Error::Io`]. No file exists then.
    ///
    /// # Panics
    /// If the block has no series.
    pub(crate) fn finish(mut self) -> Result<BlockMeta> {
        assert!(
            self.meta.n_series > 0,
            "a block has a series: the caller drops a writer without series"
        );
        self.end_group()?;
        let groups = self.groups.finish(&mut self.pages)?;
        let (columns_size, timestamp_columns) = self.timestamp_columns.finish(&mut self.pages)?;
        self.meta.timestamps_size += columns_size;
        let start = self.pages.size();
        let index = self.index.finish(&mut self.pages)?;
        self.meta.index_size += self.pages.size() - start;
        let mut footer = Footer {
            meta: self.meta,
            groups,
            timestamp_columns,
            index,
        };
        let page = self.pages.write(&footer.encode())?;
        self.pages.write_raw(&trailer(page));
        self.pages.sync()?;
        footer.meta.size = self.pages.size();
        self.file
            .publish(&self.dir, &footer.meta.origin.id.file_name())?;
        Ok(footer.meta)
    }

    fn index_series(&mut self, labels: &[Symbol]) -> Result<()> {
        let start = self.pages.size();
        self.index.series(&mut self.pages, labels)?;
        self.meta.index_size += self.pages.size() - start;
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let n_series = self.group.n_series();
        if n_series == 0 {
            return Ok(());
        }
        let (map, rows) = self.group.write(&mut self.pages)?;
        self.meta.timestamps_size += u64::from(map.size);
        self.meta.values_size += rows
            .iter()
            .map(|rows| u64::from(rows.page().size))
            .sum::<u64>();
        self.groups
            .push(&mut self.pages, |dst| put_group(dst, n_series, map, &rows))
    }
}

/// Creates the temporary file of the block `path`, which must not exist, and writes its header.
///
/// # Errors
/// [`Error::Io`]: `AlreadyExists` if the block, finished or not, exists.
pub(super) fn create_file(fs: &Arc<dyn Fs>, path: &Path) -> Result<(TemporaryFile, PageWriter)> {
    if fs.open(path).is_ok() {
        return Err(Error::io("create", path)(
            std::io::ErrorKind::AlreadyExists.into(),
        ));
    }
    let path_tmp = path.with_extension("block.tmp");
    let (file, append) = TemporaryFile::create(Arc::clone(fs), path_tmp.clone())?;
    let mut pages = PageWriter::new(&path_tmp, append)?;
    pages.write_raw(&header());
    Ok((file, pages))
}
