//! A directory as a bucket: the type `FILESYSTEM` of Thanos.
//!
//! Crash: an object is written to a temporary file and renamed once it is synced. A temporary file
//! is not listed, and the next object of its key replaces it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use varve_env::{Fs as _, RealFs};

use crate::limits::MIB;
use crate::metrics::ObjstoreMetrics;
use crate::object::{Object, check_listed};
use crate::pace::Pace;

/// Bytes that are copied at a time.
const COPY_SIZE: u64 = MIB;
/// Suffix of an unfinished object.
const UNFINISHED: &str = ".varve-unfinished";

#[derive(Debug)]
pub(super) struct Filesystem {
    dir: PathBuf,
    metrics: ObjstoreMetrics,
}

impl Filesystem {
    pub(super) fn new(dir: &Path, metrics: ObjstoreMetrics) -> Self {
        Self {
            dir: dir.to_owned(),
            metrics,
        }
    }

    pub(super) fn put(
        &self,
        key: &str,
        size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        self.metrics.observe("put", || {
            let path = self.path(key)?;
            let parent = path.parent().context("the key is empty")?;
            fs::create_dir_all(parent).with_context(|| format!("create {parent:?}"))?;
            let mut unfinished = path.clone().into_os_string();
            unfinished.push(UNFINISHED);
            let unfinished = PathBuf::from(unfinished);
            let copied = self.copy(size, source, pace, &unfinished);
            let rename = |()| {
                fs::rename(&unfinished, &path).with_context(|| format!("rename {unfinished:?}"))
            };
            if let Err(error) = copied.and_then(rename) {
                // A full disk must not stay full of it.
                let _ = fs::remove_file(&unfinished);
                return Err(error);
            }
            // The entries of new directories too.
            for dir in parent
                .ancestors()
                .take_while(|dir| dir.starts_with(&self.dir))
            {
                RealFs
                    .sync_dir(dir)
                    .with_context(|| format!("sync {dir:?}"))?;
            }
            Ok(())
        })
    }

    fn copy(&self, size: u64, source: &mut dyn Read, pace: &mut Pace, path: &Path) -> Result<()> {
        let mut file = File::create(path).with_context(|| format!("create {path:?}"))?;
        let mut left = size;
        while left > 0 {
            let mut bytes = vec![0; left.min(COPY_SIZE) as usize];
            source.read_exact(&mut bytes).context("read the source")?;
            pace.wait_for(bytes.len() as u64)?;
            file.write_all(&bytes)
                .with_context(|| format!("write {path:?}"))?;
            self.metrics.count_sent(bytes.len());
            left -= bytes.len() as u64;
        }
        file.sync_all().with_context(|| format!("sync {path:?}"))
    }

    pub(super) fn get_range(&self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        self.metrics.observe("get", || {
            let mut file = match File::open(self.path(key)?) {
                Err(error) if is_missing(&error) => return Ok(None),
                file => file?,
            };
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(size).read_to_end(&mut bytes)?;
            self.metrics.count_received(bytes.len());
            Ok(Some(bytes.into()))
        })
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.metrics.observe("list", || {
            let (dir, _) = prefix.rsplit_once('/').unwrap_or_default();
            let mut objects = Vec::new();
            let mut dirs = vec![self.path(dir)?];
            while let Some(dir) = dirs.pop() {
                let entries = match fs::read_dir(&dir) {
                    Err(error) if is_missing(&error) => continue,
                    entries => entries.with_context(|| format!("list {dir:?}"))?,
                };
                for entry in entries {
                    let path = entry.with_context(|| format!("list {dir:?}"))?.path();
                    let Some(key) = path.strip_prefix(&self.dir).ok().and_then(Path::to_str) else {
                        continue;
                    };
                    let metadata = match path.metadata() {
                        // Removed meanwhile.
                        Err(error) if is_missing(&error) => continue,
                        metadata => metadata.with_context(|| format!("list {path:?}"))?,
                    };
                    if metadata.is_dir() {
                        dirs.push(path);
                    } else if key.starts_with(prefix) && !key.ends_with(UNFINISHED) {
                        objects.push(Object {
                            key: key.to_owned(),
                            size: metadata.len(),
                        });
                        check_listed(&objects)?;
                    }
                }
            }
            Ok(objects)
        })
    }

    pub(super) fn delete(&self, key: &str) -> Result<()> {
        self.metrics.observe("delete", || {
            let path = self.path(key)?;
            match fs::remove_file(&path) {
                Err(error) if !is_missing(&error) => return Err(error.into()),
                _ => {}
            }
            // Directories exist only as parts of keys. One that is not empty stays.
            for dir in path
                .ancestors()
                .skip(1)
                .take_while(|dir| *dir != self.dir && dir.starts_with(&self.dir))
            {
                if fs::remove_dir(dir).is_err() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Returns the path of a key, which must not lead out of the directory.
    fn path(&self, key: &str) -> Result<PathBuf> {
        let is_plain = key.split('/').all(|part| part != ".." && part != ".");
        ensure!(
            is_plain && !key.starts_with('/'),
            "key {key:?} is not a relative path"
        );
        if key.ends_with(UNFINISHED) {
            bail!("key {key:?} is reserved");
        }
        Ok(self.dir.join(key))
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
