//! A state that is kept in a small file across restarts, for those that change seldom: read once, written at each change.
//!
//! Used by `ha` and `relabel`. What cannot be written counts, and is written later: what is decided stands meanwhile, since
//! without the disk no sample of anybody is stored for long.
//!
//! Threads: none of its own; the lock of the state is held while it is written. Crash: the old file or the new one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use varve_tsdb::fs::{Fs, StateFile, StateFileError};

/// What was found where a state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFound {
    /// Nothing is wrong.
    Sound,
    /// A file of this newer version, which is left as it is; no file is written.
    Newer(u8),
    /// A file that cannot be read, and why. It is kept aside.
    Damaged(String),
}

/// Where a state is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    kind: StateFile,
    /// `None` if it is not kept, or what is there must stay.
    place: Option<(Arc<dyn Fs>, PathBuf)>,
    is_unsaved: bool,
    n_unsaved: u64,
}

impl Kept {
    /// Keeps nothing.
    pub(crate) fn nowhere(kind: StateFile) -> Self {
        Self { kind, place: None, is_unsaved: false, n_unsaved: 0 }
    }

    /// Reads a state from the file `path` in a folder that exists. `decode` returns `None` of a payload that no state has.
    pub(crate) fn open<T: Default>(
        kind: StateFile,
        fs: Arc<dyn Fs>,
        path: PathBuf,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> (T, Self, StateFound) {
        let read = kind.read(&*fs, &path).and_then(|payload| match payload {
            None => Ok(T::default()),
            Some(payload) => decode(&payload).ok_or_else(|| StateFileError::damaged("it holds what no state can")),
        });
        let (state, keeps, found) = match read {
            Ok(state) => (state, true, StateFound::Sound),
            Err(StateFileError::Newer(version)) => (T::default(), false, StateFound::Newer(version)),
            Err(StateFileError::Unreadable(reason)) => {
                let is_aside = fs.rename(&path, &path.with_extension("damaged")).is_ok();
                (T::default(), is_aside, StateFound::Damaged(reason))
            }
        };
        (state, Self { place: keeps.then_some((fs, path)), ..Self::nowhere(kind) }, found)
    }

    /// Counts the times that a change could not be written.
    pub(crate) fn n_unsaved(&self) -> u64 {
        self.n_unsaved
    }

    /// Writes a state that has changed.
    pub(crate) fn change(&mut self, payload: &[u8]) {
        self.n_unsaved += u64::from(self.write(payload).is_err());
    }

    /// Writes the state if its last change could not be written.
    ///
    /// # Errors
    /// If it cannot be written now either; what was there is there still.
    pub(crate) fn save(&mut self, payload: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        if self.is_unsaved { self.write(&payload()) } else { Ok(()) }
    }

    fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let Some((fs, path)) = &self.place else { return Ok(()) };
        let written = self.kind.replace(&**fs, path, payload);
        self.is_unsaved = written.is_err();
        written
    }
}
