//! The blocks in a data directory, as a start or a tool finds them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_context::QueryContext;
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, list_if_exists};
use varve_model::TimeRange;

use super::pending_import::{self, PendingImport};
use super::stored_block::StoredBlock;
use crate::block::meta::{BlockId, BlockMeta, superseded};
use crate::block::page::PageCache;
use crate::block::reader::Block;
use crate::block::tombstones::Tombstones;
use crate::error::{Error, Result};

/// A block that is not used, and whose samples no other block has.
#[derive(Debug)]
pub(super) struct MissingBlock {
    /// All of time if it is unknown.
    pub(super) range: TimeRange,
    pub(super) path: PathBuf,
}

/// The contents of the directory of blocks at startup.
pub(super) struct DirectoryContents {
    pub(super) blocks: Vec<Arc<Block>>,
    /// Unfinished files.
    pub(super) unfinished: Vec<PathBuf>,
    /// Unfinished imports.
    pub(super) importing: Vec<PendingImport>,
    /// The blocks that are not used, because they are damaged or unreadable.
    pub(super) damage: DamageReport,
    /// Those of them whose samples nothing replaces.
    pub(super) missing: Vec<MissingBlock>,
    pub(super) last_id: u64,
}

impl MissingBlock {
    fn of(block: &Block) -> Self {
        Self {
            range: block.meta().range,
            path: block.path().to_owned(),
        }
    }
}

impl DirectoryContents {
    /// Opens all blocks that can be opened. Changes nothing.
    pub(super) fn list(fs: &dyn Fs, dir: &Path, cache: &Arc<PageCache>) -> Result<Self> {
        let names = list_if_exists(fs, dir)?;
        let importing = PendingImport::find_all(fs, dir, &names)?;
        let last_id = importing
            .iter()
            .map(|import| import.last().0)
            .max()
            .unwrap_or(0);
        let mut found = Self {
            blocks: Vec::new(),
            unfinished: Vec::new(),
            importing,
            damage: DamageReport::default(),
            missing: Vec::new(),
            last_id,
        };
        for name in names {
            let path = dir.join(&name);
            if BlockId::is_unfinished(&name) {
                found.unfinished.push(path);
            } else if let Some(id) = BlockId::parse(&name) {
                found.last_id = found.last_id.max(id.0);
                if found.importing.iter().any(|import| import.has(id)) {
                    continue;
                }
                let opened = Block::open_numbered(fs, dir, id, cache).map(Arc::new);
                match skip_damaged(opened, &path, MISSING, &mut found.damage)? {
                    Some(block) => found.blocks.push(block),
                    None => {
                        let range = Block::range_of(fs, dir, id, cache);
                        let range = range.unwrap_or(TimeRange::ALL);
                        found.missing.push(MissingBlock { range, path });
                    }
                }
            }
        }
        Ok(found)
    }

    /// Drops merged blocks that are damaged if their sources still exist. A crash may have
    /// prevented the verification: a merged block gets its name before it is verified. Also drops
    /// the damaged ones of the blocks that overlap `verified`.
    pub(super) fn drop_damaged(&mut self, verified: Option<TimeRange>) -> Result<()> {
        let replaced = superseded(self.blocks.iter().map(|block| block.meta()));
        for block in std::mem::take(&mut self.blocks) {
            let replaces = block
                .meta()
                .origin
                .sources
                .iter()
                .any(|source| replaced.contains(source));
            let is_verified = verified.is_some_and(|range| range.overlaps(block.meta().range));
            let read = if replaces || is_verified {
                block.verify(&QueryContext::unbounded())
            } else {
                Ok(())
            };
            let consequence = if replaces { REPLACED } else { MISSING };
            if skip_damaged(read, block.path(), consequence, &mut self.damage)?.is_some() {
                self.blocks.push(block);
            } else if !replaces {
                self.missing.push(MissingBlock::of(&block));
            }
        }
        Ok(())
    }

    /// Removes unfinished imports, sources of finished ones, blocks that a merged block has
    /// replaced, and unfinished files.
    pub(super) fn clear(&mut self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        self.importing
            .iter()
            .try_for_each(|import| import.undo(fs, dir))?;
        pending_import::remove_sources(fs, dir);
        let replaced = superseded(self.blocks.iter().map(|block| block.meta()));
        let removed = self
            .blocks
            .extract_if(.., |block| replaced.contains(&block.meta().origin.id));
        for path in removed
            .map(|block| block.path().to_owned())
            .chain(self.unfinished.drain(..))
        {
            fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    /// Applies the tombstones. Skips a block whose deleted series cannot be determined.
    pub(super) fn stored(&mut self, tombstones: &Tombstones) -> Result<Vec<Arc<StoredBlock>>> {
        let mut list = Vec::with_capacity(self.blocks.len());
        for block in self.blocks.drain(..) {
            let stored = StoredBlock::new(Arc::clone(&block), tombstones).map(Arc::new);
            match skip_damaged(stored, block.path(), MISSING, &mut self.damage)? {
                Some(stored) => list.push(stored),
                None => self.missing.push(MissingBlock::of(&block)),
            }
        }
        Ok(list)
    }
}

/// Returns the metadata of the blocks of a data directory whose index is sound, without those that a
/// merged block has replaced, and the damage of the others. Takes no lock and changes nothing. A
/// block that is removed meanwhile is skipped.
///
/// # Errors
/// The errors of [`sound_in`].
pub(crate) fn metas_in(fs: &dyn Fs, data_dir: &Path) -> Result<(Vec<BlockMeta>, DamageReport)> {
    let ctx = QueryContext::unbounded();
    let (mut metas, damage) = sound_in(fs, data_dir, |block| block.index.verify(&ctx))?;
    let replaced = superseded(metas.iter());
    metas.retain(|meta| !replaced.contains(&meta.origin.id));
    Ok((metas, damage))
}

/// Verifies all bytes of the blocks of a data directory. Returns the number of sound blocks, and the
/// damage: one entry for each damaged block. Takes no lock and changes nothing. A block that is
/// removed meanwhile is skipped.
///
/// # Errors
/// The errors of [`sound_in`].
pub(crate) fn check_in(fs: &dyn Fs, data_dir: &Path) -> Result<(u64, DamageReport)> {
    let ctx = QueryContext::unbounded();
    let (metas, damage) = sound_in(fs, data_dir, |block| block.verify(&ctx))?;
    Ok((metas.len() as u64, damage))
}

/// Returns the metadata of the blocks of a data directory that can be opened and that `verify`
/// accepts, and the damage of the others.
///
/// # Errors
/// [`Error::Io`] if the directory cannot be listed or there are too many open files;
/// [`Error::Version`] if a block has a newer format.
fn sound_in(
    fs: &dyn Fs,
    data_dir: &Path,
    verify: impl Fn(&Block) -> Result<()>,
) -> Result<(Vec<BlockMeta>, DamageReport)> {
    let dir = data_dir.join("blocks");
    let cache = Arc::new(PageCache::new(0));
    let mut sound = Vec::new();
    let mut damage = DamageReport::default();
    let names = list_if_exists(fs, &dir)?;
    let importing = PendingImport::find_all(fs, &dir, &names)?;
    for name in names {
        let Some(id) = BlockId::parse(&name) else {
            continue;
        };
        if importing.iter().any(|import| import.has(id)) {
            continue;
        }
        let opened = Block::open_numbered(fs, &dir, id, &cache);
        match opened.and_then(|block| verify(&block).map(|()| block)) {
            Ok(block) => sound.push(block.meta().clone()),
            Err(error) if is_fatal(&error) => return Err(error),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => report(&dir.join(&name), error, &mut damage),
        }
    }
    Ok((sound, damage))
}

/// Reports the error of reading a block.
fn report(path: &Path, error: Error, damage: &mut DamageReport) {
    let (offset, reason) = match error {
        Error::Corrupt { offset, reason, .. } => (offset, reason),
        error => (0, error.to_string()),
    };
    damage.push(path, offset, DamageKind::Corrupt, reason);
}

/// Returns `true` if the error does not mean that the block is damaged: its format is newer, or
/// there are too many open files.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Version { .. }) || error.is_out_of_files()
}

/// The consequence of damage in a block that nothing replaces.
const MISSING: &str = "its samples are missing until it is repaired";
/// The consequence of damage in a merged block whose sources still exist.
const REPLACED: &str = "its remaining sources are used instead";

/// Logs and reports a block that is damaged or unreadable, and returns `None`. Its file is kept.
fn skip_damaged<T>(
    read: Result<T>,
    path: &Path,
    consequence: &str,
    damage: &mut DamageReport,
) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_fatal(&error) => Err(error),
        Err(error) => {
            tracing::error!(?path, %error, "a block cannot be read; {consequence}");
            report(path, error, damage);
            Ok(None)
        }
    }
}
