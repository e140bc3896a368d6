//! The operating system's file system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::fs::{AppendFile, Fs, Lock, ReadFile};
use crate::volume::Volume;

/// The operating system's file system.
#[derive(Debug)]
pub struct RealFs;

impl Fs for RealFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // Names that are not UTF-8 do not belong to the store.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        let file = open_to_read(path)?;
        let size = file.metadata()?.len();
        if size > size_max {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).map_err(io::Error::other)?);
        file.take(size_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(
            OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(path)?,
        ))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(open_to_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(size)?;
        file.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let volume = rustix::fs::statvfs(path)?;
        let size = volume.f_blocks.saturating_mul(volume.f_frsize);
        // Some file systems in user space do not know their size.
        if size == 0 {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        Ok(Volume { size, free })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        match check_regular(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _regular_or_none => {}
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // For whoever looks for the process. A full disk does not prevent a start.
                let _unwritten = write_process_id(&file);
                Ok(Box::new(file))
            }
            Err(TryLockError::WouldBlock) => Err(io::Error::from(io::ErrorKind::WouldBlock)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Lock for File {}

/// Replaces the content of a file by the id of this process, and a newline.
fn write_process_id(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn open_to_read(path: &Path) -> io::Result<File> {
    check_regular(path)?;
    File::open(path)
}

/// Rejects anything but regular files: opening a pipe blocks, and a device never ends. A dangling
/// link does not count as a missing file: if the tombstones cannot be read, deleted samples must
/// not reappear.
fn check_regular(path: &Path) -> io::Result<()> {
    let rejected = |reason| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => rejected("not a file but a directory, a pipe or a device"),
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
            rejected("a link to a missing file")
        }
        Err(e) => Err(e),
    }
}

impl AppendFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl ReadFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_has_the_id_of_the_process_that_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(&path, "the id of an earlier process\n").unwrap();
        let lock = RealFs.lock(&path).unwrap();
        let expect = format!("{}\n", std::process::id());
        assert_eq!(fs::read_to_string(&path).unwrap(), expect);
        assert_eq!(
            RealFs.lock(&path).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), expect);
        drop(lock);
    }

    #[test]
    fn other_than_regular_files_are_rejected_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        for name in ["directory", "device", "dangling"] {
            let rejected = [
                RealFs.open(&at(name)).err(),
                RealFs.read(&at(name), u64::MAX).err(),
                RealFs.lock(&at(name)).err(),
            ];
            for error in rejected {
                assert_eq!(
                    error.map(|error| error.kind()),
                    Some(io::ErrorKind::InvalidInput),
                    "{name}"
                );
            }
        }
        assert_eq!(
            RealFs.read(&at("nothing"), 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert_eq!(RealFs.read(&at("link"), 4).unwrap(), b"text");
        assert!(RealFs.lock(&at("lock")).is_ok());
    }
}
