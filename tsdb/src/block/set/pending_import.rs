//! Imports in progress.
//!
//! An import writes several blocks one after the other, and must add all of them or none. While it
//! runs, an empty marker file in the directory of blocks names their ids. The durable removal of
//! the marker commits the import. If there is a marker at startup, its blocks are removed, and then
//! the marker.
//!
//! ```text
//! blocks/00000012-00000014.importing    blocks 12, 13 and 14, if they exist, do not belong to the store yet
//! import/00000003.block.imported        a source of an import that is committed, or of the unfinished one
//! ```
//!
//! Another import of the same sources would restore samples that are deleted meanwhile. So the
//! sources are renamed before the commit, and the next start removes those that are left. If there
//! is a marker, it undoes the renames.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use varve_env::{Fs, is_out_of_files, remove_if_exists};

use crate::block::meta::{BlockId, NUMBER_MAX};
use crate::error::{Error, Result};

const SUFFIX: &str = ".importing";
/// Ends the names of the sources from the commit on.
const IMPORTED_SUFFIX: &str = ".imported";

/// The blocks of an import in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingImport {
    blocks: RangeInclusive<u64>,
}

impl PendingImport {
    /// Returns the imports of the marker files among `file_names`.
    ///
    /// # Errors
    /// Those of [`PendingImport::find`].
    pub(crate) fn find_all(
        fs: &dyn Fs,
        blocks_dir: &Path,
        file_names: &[String],
    ) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for name in file_names {
            found.extend(Self::find(fs, blocks_dir, name)?);
        }
        Ok(found)
    }

    /// Returns the import of a marker file, or `None` if the file is not an empty marker. A marker
    /// must be empty, so that a foreign file with such a name removes no blocks.
    ///
    /// # Errors
    /// [`Error::Io`] if there are too many open files: without the marker, the blocks would belong
    /// to the store.
    pub(crate) fn find(fs: &dyn Fs, blocks_dir: &Path, file_name: &str) -> Result<Option<Self>> {
        let Some(importing) = Self::parse(file_name) else {
            return Ok(None);
        };
        let path = blocks_dir.join(file_name);
        match fs.open(&path).and_then(|file| file.size()) {
            Ok(size) => Ok((size == 0).then_some(importing)),
            Err(error) if is_out_of_files(&error) => Err(Error::io("open", &path)(error)),
            Err(_) => Ok(None),
        }
    }

    fn parse(file_name: &str) -> Option<Self> {
        let (first, last) = file_name.strip_suffix(SUFFIX)?.split_once('-')?;
        let importing = Self {
            blocks: first.parse().ok()?..=last.parse().ok()?,
        };
        let is_possible = !importing.blocks.is_empty() && *importing.blocks.end() <= NUMBER_MAX;
        (is_possible && importing.file_name() == file_name).then_some(importing)
    }

    /// Returns `true` if a block belongs to the import.
    pub(crate) fn has(&self, id: BlockId) -> bool {
        self.blocks.contains(&id.0)
    }

    /// Returns the id of the last block.
    pub(crate) fn last(&self) -> BlockId {
        BlockId(*self.blocks.end())
    }

    /// Creates the marker durably. None of the blocks may exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn begin(
        fs: &dyn Fs,
        blocks_dir: &Path,
        blocks: RangeInclusive<u64>,
    ) -> Result<Self> {
        let importing = Self { blocks };
        let path = blocks_dir.join(importing.file_name());
        fs.create(&path).map_err(Error::io("create", &path))?;
        fs.sync_dir(blocks_dir)
            .map_err(Error::io("sync", blocks_dir))?;
        Ok(importing)
    }

    /// Removes the marker durably, which commits the import. See also [`rename_sources`].
    ///
    /// # Errors
    /// [`Error::Io`]. Then [`PendingImport::undo`] or the next start removes the blocks if the
    /// marker still exists.
    pub(crate) fn end(&self, fs: &dyn Fs, blocks_dir: &Path) -> Result<()> {
        let path = blocks_dir.join(self.file_name());
        remove_if_exists(fs, &path)?;
        fs.sync_dir(blocks_dir)
            .map_err(Error::io("sync", blocks_dir))
    }

    /// Renames the sources back and removes the blocks, and then the marker. May be called again.
    ///
    /// # Errors
    /// [`Error::Io`]. The next start removes the rest.
    pub(crate) fn undo(&self, fs: &dyn Fs, blocks_dir: &Path) -> Result<()> {
        rename(
            fs,
            &sources(fs, &import_dir(blocks_dir), is_imported)?,
            original_name,
        )?;
        let names = fs.list(blocks_dir).map_err(Error::io("list", blocks_dir))?;
        for name in names {
            if BlockId::parse(&name).is_some_and(|id| self.has(id)) {
                remove_if_exists(fs, &blocks_dir.join(name))?;
            }
        }
        // The marker must not be removed before the blocks are.
        fs.sync_dir(blocks_dir)
            .map_err(Error::io("sync", blocks_dir))?;
        self.end(fs, blocks_dir)
    }

    fn file_name(&self) -> String {
        format!(
            "{:08}-{:08}{SUFFIX}",
            self.blocks.start(),
            self.blocks.end()
        )
    }
}

/// Returns the sources of the next import in the directory `import` and its subdirectories, sorted
/// by name.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn importable(fs: &dyn Fs, import_dir: &Path) -> Result<Vec<PathBuf>> {
    sources(fs, import_dir, |name| BlockId::parse(name).is_some())
}

/// Renames the sources of an import durably before its commit, and returns the new paths.
///
/// # Errors
/// [`Error::Io`]. Then [`PendingImport::undo`] renames them back.
pub(crate) fn rename_sources(fs: &dyn Fs, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    rename(fs, paths, imported_name)?;
    Ok(paths.iter().map(|path| imported_name(path)).collect())
}

/// Removes the sources of committed imports. There must be no marker.
pub(crate) fn remove_sources(fs: &dyn Fs, blocks_dir: &Path) {
    for path in sources(fs, &import_dir(blocks_dir), is_imported).unwrap_or_default() {
        if let Err(error) = fs.remove(&path) {
            tracing::error!(?path, %error, "could not remove an imported block");
        }
    }
}

fn import_dir(blocks_dir: &Path) -> PathBuf {
    blocks_dir.with_file_name("import")
}

fn is_imported(name: &str) -> bool {
    name.strip_suffix(IMPORTED_SUFFIX)
        .is_some_and(|name| BlockId::parse(name).is_some())
}

/// Lists the files in a directory and its subdirectories whose names are those of sources.
fn sources(fs: &dyn Fs, dir: &Path, is_source: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for name in names(fs, dir)? {
        let path = dir.join(&name);
        if is_source(&name) {
            paths.push(path);
        } else {
            paths.extend(
                names(fs, &path)?
                    .iter()
                    .filter(|name| is_source(name))
                    .map(|name| path.join(name)),
            );
        }
    }
    Ok(paths)
}

/// Lists a directory. Returns an empty list if it does not exist.
fn names(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>> {
    match fs.list(dir) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        names => names.map_err(Error::io("list", dir)),
    }
}

/// Returns the path of a source from the commit on.
fn imported_name(path: &Path) -> PathBuf {
    let mut imported = path.as_os_str().to_owned();
    imported.push(IMPORTED_SUFFIX);
    imported.into()
}

/// Returns the path of a source before the commit.
fn original_name(imported: &Path) -> PathBuf {
    imported.with_extension("")
}

/// Renames files durably.
fn rename(fs: &dyn Fs, paths: &[PathBuf], new_name: fn(&Path) -> PathBuf) -> Result<()> {
    for path in paths {
        fs.rename(path, &new_name(path))
            .map_err(Error::io("rename", path))?;
    }
    let dirs: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).collect();
    dirs.into_iter()
        .try_for_each(|dir| fs.sync_dir(dir).map_err(Error::io("sync", dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_names_round_trip_and_others_are_rejected() {
        let importing = PendingImport {
            blocks: 7..=123_456_789,
        };
        assert_eq!(
            PendingImport::parse(&importing.file_name()),
            Some(importing.clone())
        );
        assert!(
            importing.has(BlockId(7))
                && importing.has(importing.last())
                && !importing.has(BlockId(6))
        );
        let no_next = "00000007-18446744073709551615.importing";
        for bad in [
            "00000007-00000006.importing",
            "7-8.importing",
            "00000007.importing",
            "00000007-00000008",
            no_next,
            "",
        ] {
            assert_eq!(PendingImport::parse(bad), None, "{bad}");
        }
    }
}
