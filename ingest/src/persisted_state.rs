//! State that is persisted in a small file. The file is read once and replaced as a whole at each
//! change.
//!
//! Used by `ha` and `relabel`, whose states change rarely. A failed write is counted and repeated
//! later. Until then only the memory has the change. This is acceptable, because a store with a
//! failing disk soon rejects samples, too.
//!
//! Threads: the caller holds the lock of the state during a write. Crash: leaves the old file or
//! the new one.

use std::path::PathBuf;
use std::sync::Arc;

use varve_env::{Error, Fs, StateFile, StateFileError};

/// The file of a state.
#[derive(Debug)]
pub(crate) struct PersistedState {
    kind: StateFile,
    /// The file system and the path; `None` if nothing is persisted.
    location: Option<(Arc<dyn Fs>, PathBuf)>,
    is_dirty: bool,
    n_write_failures: u64,
}

impl PersistedState {
    /// Creates a state that is not persisted.
    pub(crate) fn in_memory(kind: StateFile) -> Self {
        Self {
            kind,
            location: None,
            is_dirty: false,
            n_write_failures: 0,
        }
    }

    /// Loads a state from the file `path` as [`StateFile::load`] does. Its directory must exist.
    /// Nothing is persisted if the file must stay unchanged.
    pub(crate) fn open<T: Default>(
        kind: StateFile,
        fs: Arc<dyn Fs>,
        path: PathBuf,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> (T, Self, Result<(), StateFileError>) {
        let loaded = kind.load(&*fs, &path, decode);
        let location = loaded.is_replaceable().then_some((fs, path));
        (
            loaded.state.unwrap_or_default(),
            Self {
                location,
                ..Self::in_memory(kind)
            },
            loaded.found,
        )
    }

    /// Returns the number of failed writes.
    pub(crate) fn n_write_failures(&self) -> u64 {
        self.n_write_failures
    }

    /// Writes a changed state. Counts a failure.
    pub(crate) fn write(&mut self, payload: &[u8]) {
        self.n_write_failures += u64::from(self.replace(payload).is_err());
    }

    /// Writes the state if its last change could not be written.
    ///
    /// # Errors
    /// If the write fails again. The file is unchanged then.
    pub(crate) fn save(&mut self, payload: impl FnOnce() -> Vec<u8>) -> Result<(), Error> {
        if self.is_dirty {
            self.replace(&payload())
        } else {
            Ok(())
        }
    }

    fn replace(&mut self, payload: &[u8]) -> Result<(), Error> {
        let Some((fs, path)) = &self.location else {
            return Ok(());
        };
        let replaced = self.kind.replace(&**fs, path, payload);
        self.is_dirty = replaced.is_err();
        replaced
    }
}

/// Appends the size of a string as u16, and the string.
pub(crate) fn put_string(bytes: &mut Vec<u8>, string: &str) {
    let size = u16::try_from(string.len()).expect("persisted strings are bounded");
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(string.as_bytes());
}

/// Reads a payload. Each read returns `None` past the end or beyond its bound.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// Reads a u16 of at most `max`.
    pub(crate) fn len(&mut self, max: usize) -> Option<usize> {
        let len = usize::from(u16::from_le_bytes(self.bytes()?));
        (len <= max).then_some(len)
    }

    /// Reads a string of at most `size_max` bytes.
    pub(crate) fn string(&mut self, size_max: usize) -> Option<&'a str> {
        let size = self.len(size_max)?;
        let (string, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        std::str::from_utf8(string).ok()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;

    use varve_env::testing::{Fault, MemFs, PowerCut};

    use super::*;

    const KIND: StateFile = StateFile {
        magic: *b"TEST",
        version: 1,
        payload_size_max: 100,
    };
    const PATH: &str = "/data/state";

    fn open(fs: &MemFs) -> (String, PersistedState, Result<(), StateFileError>) {
        let decode = |payload: &[u8]| {
            let mut cursor = Cursor::new(payload);
            let string = cursor.string(8)?.to_owned();
            cursor.is_at_end().then_some(string)
        };
        PersistedState::open(KIND, Arc::new(fs.clone()), PATH.into(), decode)
    }

    fn payload(string: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_string(&mut bytes, string);
        bytes
    }

    #[test]
    fn a_damaged_file_is_renamed_and_a_newer_one_stays() {
        let fs = MemFs::with_dir("/data");
        let (_, mut file, found) = open(&fs);
        assert_eq!(found, Ok(()));
        file.write(&payload("state"));
        assert_eq!((open(&fs).0.as_str(), open(&fs).2), ("state", Ok(())));
        let bytes = fs.read(Path::new(PATH), 1_000).unwrap();
        let put = |bytes: &[u8]| {
            let fs = MemFs::with_dir("/data");
            fs.create(Path::new(PATH)).unwrap().append(bytes).unwrap();
            fs
        };
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            for damaged in [&flipped[..], &bytes[..at]] {
                let fs = put(damaged);
                match open(&fs).2 {
                    Err(StateFileError::Damaged(_)) => {
                        assert_eq!(
                            fs.read(Path::new("/data/state.damaged"), 1_000).unwrap(),
                            damaged
                        );
                    }
                    Err(StateFileError::Newer(_)) => assert_eq!(at, 4, "the version"),
                    found => panic!("{at}: {found:?}"),
                }
            }
        }
        let mut newer = bytes;
        newer[4] = 2;
        let fs = put(&newer);
        let (state, mut file, found) = open(&fs);
        assert_eq!((state.as_str(), found), ("", Err(StateFileError::Newer(2))));
        file.write(&payload("other"));
        assert_eq!(fs.read(Path::new(PATH), 1_000).unwrap(), newer);
    }

    #[test]
    fn a_damaged_file_that_cannot_be_renamed_stays() {
        let fs = MemFs::with_dir("/data");
        fs.create(Path::new(PATH))
            .unwrap()
            .append(b"damaged")
            .unwrap();
        fs.fail_at(fs.n_operations(), Fault::Fails(ErrorKind::PermissionDenied));
        let (state, mut file, found) = open(&fs);
        assert!(
            state.is_empty() && matches!(found, Err(StateFileError::NotRenamed(_))),
            "{found:?}"
        );
        file.write(&payload("other"));
        assert_eq!(fs.read(Path::new(PATH), 1_000).unwrap(), b"damaged");
    }

    #[test]
    fn a_file_that_the_disk_does_not_return_stays() {
        let fs = MemFs::with_dir("/data");
        open(&fs).1.write(&payload("state"));
        fs.set_bad_sector(Path::new(PATH), 0..1).unwrap();
        for _ in 0..2 {
            let (state, mut file, found) = open(&fs);
            assert!(
                state.is_empty() && matches!(found, Err(StateFileError::Unreadable(_))),
                "{found:?}"
            );
            file.write(&payload("other"));
        }
        assert!(fs.open(Path::new(PATH)).is_ok());
    }

    #[test]
    fn a_failed_write_is_counted_and_repeated() {
        let fs = MemFs::with_dir("/data");
        let (_, mut file, _) = open(&fs);
        fs.fail_at(fs.n_operations() + 1, Fault::Fails(ErrorKind::StorageFull));
        file.write(&payload("state"));
        assert_eq!(file.n_write_failures(), 1);
        file.save(|| payload("state")).unwrap();
        assert_eq!(open(&fs.crash(PowerCut::LosesAll)).0, "state");
    }

    #[test]
    fn a_payload_beyond_a_bound_is_invalid() {
        for invalid in [&[9, 0][..], &[1, 0], &[1, 0, 0xff], &[1, 0, b'a', 0]] {
            let fs = MemFs::with_dir("/data");
            open(&fs).1.write(invalid);
            assert_eq!(
                open(&fs).2,
                Err(StateFileError::damaged("its payload is invalid")),
                "{invalid:?}"
            );
        }
    }
}
