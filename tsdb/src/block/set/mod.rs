//! The set of the blocks of a store: the list, the deleted samples of each block, and changes of
//! the list.
//!
//! Used by reads (`select`), which take a snapshot of the list, and by flushes and merges, which
//! change it. A block that leaves the list is unlinked immediately. Readers keep its file open.
//!
//! Invariants
//! 1. The list is in order of acceptance: of two samples with the same timestamp, the sample of the
//!    earlier block wins.
//! 2. No block in the list is a source of another.
//! 3. `deleted` of a block contains every tombstone that affects it.

mod stored_block;

mod found;
pub(crate) mod pending_import;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_env::damage::DamageReport;
use varve_env::{Fs, remove_if_exists};
use varve_model::{Matcher, TimeRange};

use crate::block::meta::{BlockId, BlockMeta, NUMBER_MAX, precedence};
use crate::block::page::PageCache;
use crate::block::reader::Block;
use crate::block::tombstones::{Tombstone, Tombstones};
use crate::error::{Error, Result};
use crate::isolation::AppendGuard;
use found::{DirectoryContents, MissingBlock};

pub(crate) use found::{check_in, metas_in};
pub(crate) use stored_block::StoredBlock;

/// Maximum number of tombstones that [`BlockSet::newest_tombstones`] returns.
const PENDING_MAX: usize = 100;
/// Distance between the flush numbers of blocks with consecutive ids, if a block cannot be opened
/// at a start.
const FLUSHES_PER_ID: u64 = 1 << 32;

/// The outcome of [`BlockSet::replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The result replaced its sources.
    Done,
    /// A tombstone was added during the merge. The result was removed.
    Outdated,
}

/// A snapshot of the block list.
pub(crate) type BlockList = Arc<[Arc<StoredBlock>]>;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct BlockSet {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    cache: Arc<PageCache>,
    list: RwLock<BlockList>,
    /// Locked for every change of the list.
    tombstones: Mutex<Tombstones>,
    next_id: AtomicU64,
    next_flush: AtomicU64,
    /// Blocks that are damaged or unreadable, and not used. Their files are kept.
    damage: DamageReport,
    /// Those of them whose samples nothing replaces.
    missing: Vec<MissingBlock>,
    /// Files of blocks outside the list that could not be removed. The next start may add them to
    /// the list again, so they still need their tombstones.
    unremoved: Mutex<Vec<PathBuf>>,
}

impl BlockSet {
    /// Opens all blocks of a data directory. Creates the directory of blocks if it does not exist,
    /// and removes what a crash left behind: unfinished files and imports, and blocks that a merged
    /// block has replaced. A block that cannot be opened is kept and reported, and so is a damaged one
    /// that overlaps `verified`. Changes nothing before all files were examined.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Version`] if a block has a newer format; errors of
    /// [`Tombstones::open`].
    pub(crate) fn open(
        fs: &Arc<dyn Fs>,
        data_dir: &Path,
        cache_size_max: usize,
        verified: Option<TimeRange>,
    ) -> Result<Self> {
        let dir = data_dir.join("blocks");
        let cache = Arc::new(PageCache::new(cache_size_max));
        let mut found = DirectoryContents::list(&**fs, &dir, &cache)?;
        let applied = found
            .blocks
            .iter()
            .map(|block| block.meta().origin.deletions)
            .max()
            .unwrap_or(0);
        let tombstones = Tombstones::open(Arc::clone(fs), data_dir, applied)?;
        found.drop_damaged(verified)?;
        let last_flush = found
            .blocks
            .iter()
            .map(|block| block.meta().origin.flushes.1)
            .max()
            .unwrap_or(0);
        let last_flush_of_tombstones = tombstones
            .as_slice()
            .iter()
            .map(|tombstone| tombstone.flush)
            .max()
            .unwrap_or(0);
        // A block that cannot be opened may be of a later flush than all others. Tombstones must
        // apply to it after its repair, so their flush must not be below its own. That is unknown,
        // but the id is in the file name: flush numbers continue above all that a block with this
        // id can have.
        let of_last_id = found
            .last_id
            .saturating_mul(FLUSHES_PER_ID)
            .min(NUMBER_MAX / 2);
        let unknown_flush = if found.damage.n_damaged() > 0 {
            of_last_id
        } else {
            0
        };
        fs.create_dir(&dir).map_err(Error::io("create", &dir))?;
        found.clear(&**fs, &dir)?;
        let list = found.stored(&tombstones)?;
        Ok(Self {
            fs: Arc::clone(fs),
            dir,
            cache,
            list: RwLock::new(in_order(list)),
            tombstones: Mutex::new(tombstones),
            next_id: AtomicU64::new(found.last_id.saturating_add(1)),
            next_flush: AtomicU64::new(
                last_flush
                    .max(last_flush_of_tombstones)
                    .max(unknown_flush)
                    .saturating_add(1),
            ),
            damage: found.damage,
            missing: found.missing,
            unremoved: Mutex::default(),
        })
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the current block list.
    pub(crate) fn list(&self) -> BlockList {
        Arc::clone(&self.list.read())
    }

    /// Returns the metadata of the blocks.
    pub(crate) fn metas(&self) -> Vec<BlockMeta> {
        self.list()
            .iter()
            .map(|stored| stored.meta().clone())
            .collect()
    }

    /// Returns the blocks that are damaged or unreadable, and are not used.
    pub(crate) fn damage(&self) -> &DamageReport {
        &self.damage
    }

    /// Returns a warning for results of a time range of which samples are missing, because a
    /// block is damaged. Returns `None` if none are.
    pub(crate) fn missing_in(&self, range: TimeRange) -> Option<String> {
        let all = self.missing.iter();
        let mut overlapping = all.filter(|missing| missing.range.overlaps(range));
        let first = overlapping.next()?;
        Some(format!(
            "samples may be missing: {} of the blocks of this time range cannot be read, for example {}",
            1 + overlapping.count(),
            first.path.display(),
        ))
    }

    /// Returns the size of the page cache in bytes.
    pub(crate) fn cache_size(&self) -> u64 {
        self.cache.size()
    }

    /// Returns a new block id.
    pub(crate) fn next_id(&self) -> BlockId {
        BlockId(*self.next_ids(1).start())
    }

    /// Returns `n` consecutive new block ids. `n` must not be 0.
    pub(crate) fn next_ids(&self, n: u64) -> RangeInclusive<u64> {
        let first = self.next_id.fetch_add(n, Ordering::Relaxed);
        first..=first + n - 1
    }

    /// Returns the numbers of the next `n` flushes. `n` must not be 0.
    pub(crate) fn next_flushes(&self, n: u64) -> RangeInclusive<u64> {
        let first = self.next_flush.fetch_add(n, Ordering::Relaxed);
        first..=first + n - 1
    }

    /// Returns the id of the last tombstone.
    pub(crate) fn last_deletion(&self) -> u64 {
        self.tombstones.lock().last_number()
    }

    /// Returns the tombstones that no block of a later flush has followed, the newest first, at
    /// most [`PENDING_MAX`].
    pub(crate) fn newest_tombstones(&self) -> Vec<Tombstone> {
        not_followed(&self.tombstones.lock(), &self.list())
            .cloned()
            .collect()
    }

    /// Drops the tombstones that affect no block, except [`BlockSet::newest_tombstones`].
    fn prune(&self, tombstones: &mut Tombstones) -> Result<()> {
        // A block that could not be opened may be repaired, and will need its tombstones.
        if self.damage.n_damaged() > 0 {
            return Ok(());
        }
        let n_unremoved = self.unremoved.lock().len();
        if n_unremoved > 0 {
            tracing::warn!(
                files = n_unremoved,
                "tombstones are kept: files of removed blocks cannot be removed"
            );
            return Ok(());
        }
        let list = self.list();
        let affecting = list
            .iter()
            .flat_map(|stored| &stored.deleted)
            .map(|deleted| deleted.number);
        let needed: BTreeSet<u64> = affecting
            .chain(not_followed(tombstones, &list).map(|tombstone| tombstone.number))
            .collect();
        tombstones
            .prune(|tombstone| needed.contains(&tombstone.number))
            .map(drop)
    }

    /// Opens a finished block.
    ///
    /// # Errors
    /// The errors of [`Block::open_numbered`].
    pub(crate) fn open_block(&self, id: BlockId) -> Result<Arc<Block>> {
        Block::open_numbered(&*self.fs, &self.dir, id, &self.cache).map(Arc::new)
    }

    /// Opens a block that does not belong to this store.
    ///
    /// # Errors
    /// The errors of [`Block::open`].
    pub(crate) fn open_foreign(&self, path: &Path) -> Result<Arc<Block>> {
        Block::open(&*self.fs, path, &self.cache).map(Arc::new)
    }

    /// Creates hard links to all blocks in `blocks_dir` and copies the tombstones to `data_dir`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn link_into(&self, data_dir: &Path, blocks_dir: &Path) -> Result<()> {
        // Prevents the removal of blocks, and new tombstones.
        let tombstones = self.tombstones.lock();
        for stored in self.list().iter() {
            let link = blocks_dir.join(stored.meta().origin.id.file_name());
            self.fs
                .hard_link(stored.block.path(), &link)
                .map_err(Error::io("link", &link))?;
        }
        tombstones.copy_to(data_dir)
    }

    /// Adds new blocks, atomically for readers.
    ///
    /// # Errors
    /// Errors of reading the blocks.
    pub(crate) fn add(&self, new: Vec<Arc<Block>>) -> Result<()> {
        let tombstones = self.tombstones.lock();
        self.publish(self.list_with(new, &tombstones)?);
        Ok(())
    }

    /// Adds imported blocks as [`BlockSet::add`] does. `commit` makes them part of the store on
    /// disk.
    ///
    /// # Errors
    /// The errors of [`BlockSet::add`] and of `commit`. Nothing is added then.
    pub(crate) fn add_imported(
        &self,
        new: Vec<Arc<Block>>,
        commit: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let tombstones = self.tombstones.lock();
        let list = self.list_with(new, &tombstones)?;
        commit()?;
        self.publish(list);
        Ok(())
    }

    fn list_with(
        &self,
        new: Vec<Arc<Block>>,
        tombstones: &Tombstones,
    ) -> Result<Vec<Arc<StoredBlock>>> {
        let mut list = self.list().to_vec();
        for block in new {
            list.push(Arc::new(StoredBlock::new(block, tombstones)?));
        }
        Ok(list)
    }

    /// Removes the files of finished blocks that were not added.
    pub(crate) fn discard(&self, ids: impl IntoIterator<Item = BlockId>) {
        let paths = ids
            .into_iter()
            .map(|id| self.dir.join(id.file_name()))
            .collect();
        if let Err(error) = self.remove_files(paths) {
            tracing::error!(%error, "could not remove an unused block");
        }
    }

    /// Removes files of blocks that are not in the list, and those that could not be removed
    /// before. The removal is durable on return.
    ///
    /// # Errors
    /// [`Error::Io`] for the first of `paths` that cannot be removed. A later call removes it.
    fn remove_files(&self, paths: Vec<PathBuf>) -> Result<()> {
        let mut unremoved = self.unremoved.lock();
        unremoved.retain(|path| remove_if_exists(&*self.fs, path).is_err());
        let mut removed = Ok(());
        let mut gone = Vec::with_capacity(paths.len());
        for path in paths {
            match self.fs.remove(&path) {
                Ok(()) => gone.push(path),
                Err(error) => {
                    removed = removed.and(Err(Error::io("remove", &path)(error)));
                    unremoved.push(path);
                }
            }
        }
        if let Err(error) = self.fs.sync_dir(&self.dir) {
            // After a power failure the files may be back.
            unremoved.append(&mut gone);
            removed = removed.and(Err(Error::io("sync", &self.dir)(error)));
        }
        removed
    }

    /// Removes blocks from the list, and their files. `begin` begins the change, while no other
    /// change of the list can delay it. The change ends as soon as no further read sees the blocks.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be removed. The blocks have left the list nevertheless, and a
    /// later change of the list removes the file.
    pub(crate) fn remove<'a>(
        &self,
        old: &[BlockId],
        begin: impl FnOnce() -> AppendGuard<'a>,
    ) -> Result<()> {
        let mut tombstones = self.tombstones.lock();
        self.remove_from_list(old, None, Some(begin()), &mut tombstones)
    }

    /// Replaces the sources of a merge with its result, atomically for readers, and removes their
    /// files. `deletions` is the last tombstone that the merge applied. If a later tombstone
    /// affects a source, removes the result instead: it might contain deleted samples. If the
    /// result has fewer samples for reads, `begin` begins the change, as for [`BlockSet::remove`].
    ///
    /// # Errors
    /// The errors of [`BlockSet::remove`].
    pub(crate) fn replace<'a>(
        &self,
        sources: &[Arc<StoredBlock>],
        result: Option<Arc<Block>>,
        deletions: u64,
        begin: impl FnOnce() -> Option<AppendGuard<'a>>,
    ) -> Result<Replaced> {
        let mut tombstones = self.tombstones.lock();
        let is_outdated = sources.iter().any(|source| {
            tombstones
                .affecting(source.meta())
                .any(|deletion| deletion.number > deletions)
        });
        if is_outdated {
            self.remove_files(result.iter().map(|block| block.path().to_owned()).collect())?;
            return Ok(Replaced::Outdated);
        }
        let result = result
            .map(|block| StoredBlock::new(block, &tombstones))
            .transpose()?;
        let old: Vec<BlockId> = sources
            .iter()
            .map(|source| source.meta().origin.id)
            .collect();
        self.remove_from_list(&old, result, begin(), &mut tombstones)?;
        Ok(Replaced::Done)
    }

    fn remove_from_list(
        &self,
        old: &[BlockId],
        new: Option<StoredBlock>,
        change: Option<AppendGuard<'_>>,
        tombstones: &mut Tombstones,
    ) -> Result<()> {
        let list = self.list().to_vec();
        let (gone, mut stay): (Vec<_>, Vec<_>) = list
            .into_iter()
            .partition(|b| old.contains(&b.meta().origin.id));
        stay.extend(new.map(Arc::new));
        self.publish(stay);
        drop(change);
        self.remove_files(
            gone.iter()
                .map(|stored| stored.block.path().to_owned())
                .collect(),
        )?;
        self.prune(tombstones)
    }

    /// Deletes samples of the series that all matchers select from all blocks. On return the
    /// deletion is durable, and no later read returns the samples. The caller prevents flushes,
    /// whose samples may be newer than the deletion.
    ///
    /// # Errors
    /// The errors of [`Tombstones::add`]; errors of reading the blocks. Nothing is deleted then.
    pub(crate) fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        let mut tombstones = self.tombstones.lock();
        let list = self.list();
        // Before the tombstone is added: if the deleted series of a block cannot be determined,
        // there must be no tombstone.
        let mut deleted = Vec::with_capacity(list.len());
        for stored in list.iter() {
            let mut series = RoaringBitmap::new();
            if stored.meta().range.overlaps(range) {
                let ctx = QueryContext::unbounded();
                series = stored.block.index.select(&ctx, &matchers)?;
            }
            deleted.push(series);
        }

        // Includes all flushes so far, so that the tombstone also applies to merges of these
        // blocks.
        let flush = self.next_flush.load(Ordering::Relaxed) - 1;
        // Makes room for the tombstone.
        self.prune(&mut tombstones)?;
        let number = tombstones.add(matchers, range, flush)?;
        let list = list.iter().zip(deleted);
        let list = list.map(|(stored, series)| stored.without(number, range, series));
        self.publish(list.collect());
        Ok(())
    }

    fn publish(&self, list: Vec<Arc<StoredBlock>>) {
        *self.list.write() = in_order(list);
    }
}

/// Returns the tombstones that no block of a later flush has followed, the newest first, at most
/// [`PENDING_MAX`].
fn not_followed<'a>(
    tombstones: &'a Tombstones,
    list: &[Arc<StoredBlock>],
) -> impl Iterator<Item = &'a Tombstone> + use<'a> {
    let last_flush = list
        .iter()
        .map(|stored| stored.meta().origin.flushes.1)
        .max()
        .unwrap_or(0);
    tombstones
        .as_slice()
        .iter()
        .rev()
        .filter(move |tombstone| tombstone.flush >= last_flush)
        .take(PENDING_MAX)
}

fn in_order(mut list: Vec<Arc<StoredBlock>>) -> BlockList {
    list.sort_by_key(|stored| precedence(stored.meta()));
    list.into()
}
