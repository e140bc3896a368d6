//! Imports: copying whole blocks of a directory into the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_model::TimeRange;

use crate::batch::SampleSource;
use crate::block::set::pending_import::{PendingImport, importable, rename_sources};
use crate::block::{Block, BlockId, BlockOrigin};
use crate::error::Result;
use crate::store::store::Store;

impl Store {
    /// Imports blocks. See [`Db::import`](crate::Db::import). Each block is verified, and copied
    /// with an id of this store. The blocks of a failed or interrupted import are removed
    /// ([`PendingImport`]).
    ///
    /// # Errors
    /// The errors of [`Db::import`](crate::Db::import).
    pub(crate) fn import(&self, dir: &Path) -> Result<usize> {
        let mut compacting = self.compacting.lock();
        let fs = &*self.options.fs;
        let paths = importable(fs, dir)?;
        if paths.is_empty() {
            return Ok(0);
        }
        // Flushes the heads first: of two samples with one timestamp, the sample of the earlier
        // flush wins.
        let flushes = self.flush_before(paths.len() as u64)?;
        let ids = self.blocks.next_ids(paths.len() as u64);
        let blocks_dir = self.blocks.dir();
        let importing = PendingImport::begin(fs, blocks_dir, ids.clone())?;
        let imported = self.import_all(&paths, ids.zip(flushes), &importing).inspect_err(|_| {
            if let Err(error) = importing.undo(fs, blocks_dir) {
                tracing::error!(%error, "the blocks of a failed import are removed at the next start");
            }
        })?;
        for path in &imported {
            if let Err(error) = fs.remove(path) {
                tracing::error!(?path, %error, "could not remove an imported block; the next start removes it");
            }
        }
        for subdir in paths
            .iter()
            .filter_map(|path| path.parent())
            .collect::<BTreeSet<_>>()
        {
            if subdir != dir {
                let _has_other_files = fs.remove_dir(subdir);
            }
        }
        // If retention fails now, the next background run applies it.
        if let Err(error) = self.expire(&mut compacting, false) {
            tracing::error!(%error, "could not apply retention to imported blocks");
        }
        Ok(paths.len())
    }

    /// Returns the number of blocks of the next import. See
    /// [`Db::waiting_imports`](crate::Db::waiting_imports).
    pub(crate) fn waiting_imports(&self, dir: &Path) -> Result<usize> {
        Ok(importable(&*self.options.fs, dir)?.len())
    }

    /// Returns the number of blocks of the next import that are older than the retention. See
    /// [`Db::expired_imports`](crate::Db::expired_imports).
    ///
    /// # Errors
    /// The errors of [`Db::import`](crate::Db::import).
    pub(crate) fn expired_imports(&self, dir: &Path) -> Result<u64> {
        let Some(time_ms) = self.retention.lock().time_ms else {
            return Ok(0);
        };
        let mut ends_ms = Vec::new();
        for path in importable(&*self.options.fs, dir)? {
            ends_ms.push(self.blocks.open_foreign(&path)?.meta().range.end_ms);
        }
        let Some(&newest_ms) = ends_ms.iter().max() else {
            return Ok(0);
        };
        // The import makes its newest sample known, from which retention counts back.
        let imported_ms = newest_ms.min(self.newest.own_now_ms());
        let now_ms = self
            .newest
            .retention_ms()
            .unwrap_or(imported_ms)
            .max(imported_ms);
        let too_old_ms = now_ms.saturating_sub(time_ms);
        Ok(ends_ms
            .iter()
            .filter(|&&end_ms| end_ms <= too_old_ms)
            .count() as u64)
    }

    /// Imports blocks with these ids and numbers of flushes, and returns the new paths of their
    /// files. A deletion that runs meanwhile affects all of them.
    fn import_all(
        &self,
        paths: &[PathBuf],
        ids_and_flushes: impl Iterator<Item = (u64, u64)>,
        importing: &PendingImport,
    ) -> Result<Vec<PathBuf>> {
        let mut imported = Vec::with_capacity(paths.len());
        let deletions = self.blocks.last_deletion();
        for (path, (id, flush)) in paths.iter().zip(ids_and_flushes) {
            imported.push(self.import_one(path, BlockId(id), flush, deletions)?);
        }
        let newest_ms = imported
            .iter()
            .map(|block: &Arc<Block>| block.meta().range.end_ms)
            .max();
        let range = imported
            .iter()
            .map(|block| block.meta().range)
            .reduce(TimeRange::hull);
        let renamed = rename_sources(&*self.options.fs, paths)?;
        let _change = range.map(|range| self.begin_block_change(range));
        self.blocks.add_imported(imported, || {
            importing.end(&*self.options.fs, self.blocks.dir())
        })?;
        if let Some(newest_ms) = newest_ms {
            self.newest.raise(newest_ms, SampleSource::Sent);
        }
        Ok(renamed)
    }

    fn import_one(
        &self,
        path: &Path,
        id: BlockId,
        flush: u64,
        deletions: u64,
    ) -> Result<Arc<Block>> {
        let source = self.blocks.open_foreign(path)?;
        let origin = BlockOrigin {
            id,
            window: source.meta().origin.window,
            level: source.meta().origin.level,
            flushes: (flush, flush),
            sources: Vec::new(),
            deletions,
        };
        source.copy_verified(&self.options.fs, self.blocks.dir(), origin, |size| {
            self.throttle.spend(size);
        })?;
        self.blocks.open_block(id)
    }
}
