//! Small files that hold one state and are replaced as a whole, such as the leaders of HA pairs and
//! the usage record.
//!
//! Used by the crates above for state in the data directory. All of these files begin with a
//! four-byte magic, a version byte, three zero bytes, and the CRC-32C of the rest, little endian;
//! docs/format describes the rest of each.
//!
//! Crash: at any time the old or the new file exists, and possibly a partial new one under another
//! name, which the next change replaces.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::Error;
use crate::fs::{Fs, remove_if_exists, replace_file};

const VERSION_OFFSET: usize = 4;
const RESERVED_OFFSET: usize = 5;
const CHECKSUM_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = 12;

/// A kind of state file.
#[derive(Debug, Clone, Copy)]
pub struct StateFile {
    /// The magic bytes.
    pub magic: [u8; 4],
    /// The version, both written and read.
    pub version: u8,
    /// Maximum size of the payload in bytes.
    pub payload_size_max: usize,
}

/// Why a file was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFileError {
    /// It has this version, which is newer than the one that this program reads.
    #[error("its version {0} is newer than this program supports")]
    Newer(u8),
    /// The file system cannot read it, for this reason. It may be intact.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is damaged, for this reason.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It is damaged, and cannot be renamed for this reason.
    #[error("it is damaged and cannot be renamed: {0}")]
    NotRenamed(String),
}

/// The state that a process starts with.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The state in the file. `None` if the file does not exist or was rejected.
    pub state: Option<T>,
    /// Why the file was rejected, if it was.
    pub found: Result<(), StateFileError>,
}

impl<T> Loaded<T> {
    /// Returns `true` if the process may replace the file: it was read, or damaged and renamed. A
    /// file that may be intact must stay unchanged.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        matches!(self.found, Ok(()) | Err(StateFileError::Damaged(_)))
    }
}

impl StateFileError {
    /// Returns the error of a damaged file with a reason.
    #[must_use]
    pub fn damaged(reason: &str) -> Self {
        Self::Damaged(reason.to_owned())
    }
}

impl StateFile {
    /// Reads the payload of a file; `None` if the file does not exist.
    ///
    /// # Errors
    /// If it has a newer version, cannot be read, is too large, or is damaged.
    pub fn read(&self, fs: &dyn Fs, path: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
        match fs.read(path, (PAYLOAD_OFFSET + self.payload_size_max) as u64) {
            Ok(mut bytes) => {
                self.payload(&bytes)?;
                bytes.drain(..PAYLOAD_OFFSET);
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::FileTooLarge | ErrorKind::InvalidInput
                ) =>
            {
                Err(StateFileError::Damaged(error.to_string()))
            }
            Err(error) => Err(StateFileError::Unreadable(error.to_string())),
        }
    }

    /// Loads the state in a file that this process replaces later. A damaged file is renamed to
    /// `*.damaged`. `decode` returns `None` for an invalid payload.
    pub fn load<T>(
        &self,
        fs: &dyn Fs,
        path: &Path,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Loaded<T> {
        let invalid = || StateFileError::damaged("its payload is invalid");
        let read = self.read(fs, path);
        match read.and_then(|payload| {
            payload
                .map(|bytes| decode(&bytes).ok_or_else(invalid))
                .transpose()
        }) {
            Ok(state) => Loaded {
                state,
                found: Ok(()),
            },
            Err(error @ StateFileError::Damaged(_)) => {
                let renamed = fs.rename(path, &path.with_extension("damaged"));
                let not_renamed = |error: io::Error| StateFileError::NotRenamed(error.to_string());
                Loaded {
                    state: None,
                    found: Err(renamed.map_or_else(not_renamed, |()| error)),
                }
            }
            Err(error) => Loaded {
                state: None,
                found: Err(error),
            },
        }
    }

    /// Creates or replaces a file. `path` has a parent directory, in which no other file has its
    /// name with the extension `new`.
    ///
    /// # Errors
    /// If an operation on the file system fails. The old or the new file exists then.
    pub fn replace(&self, fs: &dyn Fs, path: &Path, payload: &[u8]) -> Result<(), Error> {
        let temporary = path.with_extension("new");
        // Left by a write that a crash or a full disk interrupted.
        remove_if_exists(fs, &temporary)?;
        let file = fs
            .create(&temporary)
            .map_err(Error::at("create", &temporary))?;
        file.append(&self.head(payload))
            .map_err(Error::at("write", &temporary))?;
        file.append(payload)
            .map_err(Error::at("write", &temporary))?;
        file.sync().map_err(Error::at("sync", &temporary))?;
        replace_file(fs, &temporary, path)
    }

    fn head(&self, payload: &[u8]) -> [u8; PAYLOAD_OFFSET] {
        let mut head = [0; PAYLOAD_OFFSET];
        head[..VERSION_OFFSET].copy_from_slice(&self.magic);
        head[VERSION_OFFSET] = self.version;
        head[CHECKSUM_OFFSET..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        head
    }

    /// Returns the payload if the file is valid.
    fn payload<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], StateFileError> {
        let damaged = StateFileError::damaged;
        if bytes.get(..VERSION_OFFSET) != Some(&self.magic) {
            return Err(damaged("wrong magic bytes: another kind of file"));
        }
        match bytes.get(VERSION_OFFSET) {
            Some(&version) if version == self.version => {}
            Some(&version) if version > self.version => return Err(StateFileError::Newer(version)),
            _ => return Err(damaged("its version is unknown")),
        }
        let reserved = bytes.get(RESERVED_OFFSET..CHECKSUM_OFFSET);
        let checksum = bytes.get(CHECKSUM_OFFSET..PAYLOAD_OFFSET);
        let (Some([0, 0, 0]), Some(checksum)) = (reserved, checksum) else {
            return Err(damaged("its head is damaged"));
        };
        let payload = &bytes[PAYLOAD_OFFSET..];
        if crc32c::crc32c(payload).to_le_bytes() != checksum {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFs;
    use crate::testing::{Fault, MemFs, PowerCut};

    const KIND: StateFile = StateFile {
        magic: *b"VTST",
        version: 2,
        payload_size_max: 8,
    };

    #[test]
    fn the_last_written_state_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(KIND.read(&RealFs, &path), Ok(None));
        for payload in [&b"first"[..], b"", b"12345678"] {
            KIND.replace(&RealFs, &path, payload).unwrap();
            assert_eq!(KIND.read(&RealFs, &path), Ok(Some(payload.to_vec())));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_partial_write_of_a_crash_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::fs::write(path.with_extension("new"), "half").unwrap();
        KIND.replace(&RealFs, &path, b"all").unwrap();
        assert_eq!(KIND.read(&RealFs, &path), Ok(Some(b"all".to_vec())));
    }

    #[test]
    fn cuts_flipped_bytes_and_oversized_files_are_rejected() {
        let bytes = [&KIND.head(b"payload")[..], b"payload"].concat();
        for at in 0..bytes.len() {
            assert!(KIND.payload(&bytes[..at]).is_err(), "{at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            assert!(KIND.payload(&flipped).is_err(), "{at}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        KIND.replace(&RealFs, &path, b"123456789").unwrap();
        assert!(matches!(
            KIND.read(&RealFs, &path),
            Err(StateFileError::Damaged(_))
        ));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(
            KIND.read(&RealFs, &path),
            Err(StateFileError::Damaged(_))
        ));
    }

    #[test]
    fn an_error_of_the_file_system_is_distinguished_from_damage() {
        let fs = MemFs::new();
        let path = Path::new("/state");
        KIND.replace(&fs, path, b"old").unwrap();
        fs.set_bad_sector(path, 0..1).unwrap();
        assert!(matches!(
            KIND.read(&fs, path),
            Err(StateFileError::Unreadable(_))
        ));
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut bytes = KIND.head(b"").to_vec();
        bytes[VERSION_OFFSET] = 3;
        assert_eq!(KIND.payload(&bytes), Err(StateFileError::Newer(3)));
        bytes[VERSION_OFFSET] = 1;
        assert_eq!(
            KIND.payload(&bytes),
            Err(StateFileError::damaged("its version is unknown"))
        );
    }

    #[test]
    fn a_crash_or_power_cut_leaves_the_old_or_the_new_state() {
        let path = Path::new("/state");
        let with_old = || {
            let fs = MemFs::new();
            KIND.replace(&fs, path, b"old").unwrap();
            fs
        };
        let n_before = with_old().n_operations();
        let fs = with_old();
        KIND.replace(&fs, path, b"new").unwrap();
        for (operation, seed) in (n_before..fs.n_operations())
            .flat_map(|operation| (0..8).map(move |seed| (operation, seed)))
        {
            let fs = with_old();
            fs.fail_at(operation, Fault::Dies);
            KIND.replace(&fs, path, b"new").unwrap_err();
            let after = fs.crash(PowerCut::Seeded(seed));
            let found = KIND.read(&after, path).unwrap().unwrap();
            assert!(found == b"old" || found == b"new", "{operation} {seed}");
            KIND.replace(&after, path, b"next").unwrap();
        }
        assert_eq!(
            KIND.read(&fs.crash(PowerCut::LosesAll), path),
            Ok(Some(b"new".to_vec()))
        );
    }
}
