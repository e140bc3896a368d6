//! Imports that have not come to their end.
//!
//! An import puts several files in place, one after the other, and takes in all of them or none. As long as it is at
//! work there is an empty file among the blocks whose name says which of them are its own; that it is removed, durably, is
//! the moment at which they are taken in. Who finds the file removes the blocks, and then the file.
//!
//! ```text
//! blocks/00000012-00000014.importing    blocks 12, 13 and 14, as far as they are there, belong to nobody yet
//! ```

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::block::{BlockId, NUMBER_MAX};
use crate::error::{Error, Result};
use crate::fs::Fs;

const SUFFIX: &str = ".importing";

/// The blocks of an import that is at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Importing {
    blocks: RangeInclusive<u64>,
}

impl Importing {
    /// Returns the blocks that a file of a folder stands for, or `None` if it is none of ours: blocks are removed for it.
    pub(crate) fn find(fs: &dyn Fs, dir: &Path, file_name: &str) -> Option<Self> {
        let importing = Self::parse(file_name)?;
        let is_empty = fs.open(&dir.join(file_name)).and_then(|file| file.size()).is_ok_and(|size| size == 0);
        is_empty.then_some(importing)
    }

    fn parse(file_name: &str) -> Option<Self> {
        let (first, last) = file_name.strip_suffix(SUFFIX)?.split_once('-')?;
        let importing = Self { blocks: first.parse().ok()?..=last.parse().ok()? };
        let is_possible = !importing.blocks.is_empty() && *importing.blocks.end() <= NUMBER_MAX;
        (is_possible && importing.file_name() == file_name).then_some(importing)
    }

    /// Tells whether a block is one of them.
    pub(crate) fn has(&self, id: BlockId) -> bool {
        self.blocks.contains(&id.0)
    }

    /// Returns the number of the last of them.
    pub(crate) fn last(&self) -> BlockId {
        BlockId(*self.blocks.end())
    }

    /// Says durably that these blocks are of an import; none of them is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn begin(fs: &dyn Fs, dir: &Path, blocks: RangeInclusive<u64>) -> Result<Self> {
        let importing = Self { blocks };
        let path = dir.join(importing.file_name());
        fs.create(&path).map_err(Error::io("create", &path))?;
        fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        Ok(importing)
    }

    /// Says durably that the import has come to its end.
    ///
    /// # Errors
    /// [`Error::Io`]; whether the blocks are taken in is then decided by [`Importing::undo`], or at the next start.
    pub(crate) fn end(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        remove(fs, &dir.join(self.file_name()))?;
        fs.sync_dir(dir).map_err(Error::io("sync", dir))
    }

    /// Removes the blocks, and then what says that there are any. To call it again is safe.
    ///
    /// # Errors
    /// [`Error::Io`]; what is left is removed at the next start.
    pub(crate) fn undo(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        let names = fs.list(dir).map_err(Error::io("list", dir))?;
        let is_ours = |name: &&String| BlockId::parse(name).is_some_and(|id| self.has(id));
        names.iter().filter(is_ours).try_for_each(|name| remove(fs, &dir.join(name)))?;
        // No block may outlive the file that says what it is.
        fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        self.end(fs, dir)
    }

    fn file_name(&self) -> String {
        format!("{:08}-{:08}{SUFFIX}", self.blocks.start(), self.blocks.end())
    }
}

fn remove(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(refused) if refused.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(refused)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_refused() {
        let importing = Importing { blocks: 7..=123_456_789 };
        assert_eq!(Importing::parse(&importing.file_name()), Some(importing.clone()));
        assert!(importing.has(BlockId(7)) && importing.has(importing.last()) && !importing.has(BlockId(6)));
        let no_next = "00000007-18446744073709551615.importing";
        for bad in
            ["00000007-00000006.importing", "7-8.importing", "00000007.importing", "00000007-00000008", no_next, ""]
        {
            assert_eq!(Importing::parse(bad), None, "{bad}");
        }
    }
}
