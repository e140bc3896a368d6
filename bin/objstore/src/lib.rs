//! Object storage: a bucket of S3, of a compatible server or of Google Cloud Storage, a container of
//! Azure Blob Storage, or a directory.
//!
//! Used by `uploads`, by `varve tsdb import` and by `varve tsdb backup`. All calls block, so a
//! tokio task must not make them. docs/decisions/storage/0021-object-storage.md compares it with
//! libraries.
//!
//! Invariants
//! 1. An object appears as a whole or not at all, and replaces an earlier one of its key.
//! 2. Memory: one part of an upload, or one range of a download.
//! 3. A request that stores bytes carries a checksum of them, which the server checks. Callers read
//!    objects back ([`ObjectStore::checksum`]).
//! 4. After [`Stop::stop`], each call fails before its next request.

#![forbid(unsafe_code)]

mod authorization;
mod azure;
mod call;
mod checksum;
mod config;
mod credentials;
mod filesystem;
mod limits;
mod listing;
mod metrics;
mod object;
mod pace;
mod requests;
mod s3;
pub mod uploads;
mod xml;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use varve_prometheus::block::Ulid;

pub use checksum::file_checksum;
pub use config::BucketConfig;
pub use metrics::ObjstoreMetrics;
pub use object::Object;
pub use pace::{Pace, Stop};

use azure::Azure;
use checksum::Checksum;
use config::BackendConfig;
use filesystem::Filesystem;
use limits::MIB;
use s3::S3;

/// Maximum size of a range of a download.
const RANGE_SIZE: u64 = 4 * MIB;
/// Maximum number of blocks of a bucket.
const BLOCKS_MAX: usize = 200_000;
/// File of a block that Thanos removes after some time.
pub const DELETION_MARK: &str = "deletion-mark.json";

/// Paths and sizes of the files of a block.
pub type BlockFiles = BTreeMap<String, u64>;

/// A client of one bucket.
#[derive(Debug)]
pub struct ObjectStore {
    backend: Backend,
    prefix: String,
    pace: Pace,
}

#[derive(Debug)]
enum Backend {
    Filesystem(Filesystem),
    /// Also the XML API of Google Cloud Storage.
    S3(Box<S3>),
    Azure(Box<Azure>),
}

impl ObjectStore {
    /// Creates a client. The first call connects.
    ///
    /// # Errors
    /// If a certificate is invalid.
    pub fn new(config: &BucketConfig, pace: Pace, metrics: ObjstoreMetrics) -> Result<Self> {
        let backend = match &config.backend {
            BackendConfig::Filesystem(dir) => Backend::Filesystem(Filesystem::new(dir, metrics)),
            BackendConfig::S3(s3) => {
                Backend::S3(Box::new(S3::new(s3, Arc::clone(pace.stop()), metrics)?))
            }
            BackendConfig::Gcs(gcs) => {
                Backend::S3(Box::new(S3::of_gcs(gcs, Arc::clone(pace.stop()), metrics)?))
            }
            BackendConfig::Azure(azure) => {
                let stop = Arc::clone(pace.stop());
                Backend::Azure(Box::new(Azure::new(azure, stop, metrics)?))
            }
        };
        Ok(Self {
            backend,
            prefix: config.prefix.clone(),
            pace,
        })
    }

    /// Stores a file as an object.
    ///
    /// # Errors
    /// If the file cannot be read, or the bucket does not accept it after all retries.
    pub fn put_file(&mut self, key: &str, path: &Path) -> Result<()> {
        let mut file = File::open(path).with_context(|| format!("open {path:?}"))?;
        let size = file
            .metadata()
            .with_context(|| format!("read {path:?}"))?
            .len();
        self.put(key, size, &mut file)
    }

    /// Stores `size` bytes as an object.
    ///
    /// # Errors
    /// If the source has fewer bytes, or the bucket does not accept them after all retries.
    pub fn put(&mut self, key: &str, size: u64, source: &mut dyn Read) -> Result<()> {
        self.pace.check()?;
        let key = format!("{}{key}", self.prefix);
        let pace = &mut self.pace;
        let stored = match &mut self.backend {
            Backend::Filesystem(filesystem) => filesystem.put(&key, size, source, pace),
            Backend::S3(s3) => s3.put(&key, size, source, pace),
            Backend::Azure(azure) => azure.put(&key, size, source, pace),
        };
        stored.with_context(|| format!("store object {key:?}"))
    }

    /// Passes the bytes of an object of a known size to `each`, a range at a time.
    ///
    /// # Errors
    /// If the object does not exist or has fewer bytes. Errors of the bucket and of `each`.
    fn get(
        &mut self,
        key: &str,
        size: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let key = format!("{}{key}", self.prefix);
        let mut offset = 0;
        while offset < size {
            let range_size = RANGE_SIZE.min(size - offset);
            let bytes = self.get_range(&key, offset, range_size)?;
            let bytes = bytes.with_context(|| format!("object {key:?} does not exist"))?;
            ensure!(
                bytes.len() as u64 == range_size,
                "object {key:?} has fewer than {size} bytes"
            );
            each(&bytes)?;
            offset += range_size;
        }
        Ok(())
    }

    /// Returns at most `size` bytes of an object, fewer at its end, or `None` if it does not exist.
    fn get_range(&mut self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        self.pace.check()?;
        let read = match &mut self.backend {
            Backend::Filesystem(filesystem) => filesystem.get_range(key, offset, size),
            Backend::S3(s3) => s3.get_range(key, offset, size),
            Backend::Azure(azure) => azure.get_range(key, offset, size),
        };
        let read = read.with_context(|| format!("read object {key:?}"))?;
        self.pace
            .wait_for(read.as_ref().map_or(0, |bytes| bytes.len() as u64))?;
        Ok(read)
    }

    /// Downloads an object of a known size to a new file. Returns its SHA-256.
    ///
    /// # Errors
    /// If the object does not exist or has fewer bytes, or the file cannot be written. Errors of
    /// the bucket.
    pub fn get_file(&mut self, key: &str, size: u64, path: &Path) -> Result<String> {
        let parent = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(parent).with_context(|| format!("create {parent:?}"))?;
        let mut file = File::create(path).with_context(|| format!("create {path:?}"))?;
        let mut checksum = Checksum::new();
        self.get(key, size, &mut |bytes| {
            checksum.add(bytes);
            file.write_all(bytes)
                .with_context(|| format!("write {path:?}"))
        })?;
        file.sync_all().with_context(|| format!("sync {path:?}"))?;
        Ok(checksum.finish())
    }

    /// Returns a small object, or `None` if it does not exist.
    ///
    /// # Errors
    /// If it has more than `size_max` bytes. Errors of the bucket.
    pub fn read(&mut self, key: &str, size_max: u64) -> Result<Option<Vec<u8>>> {
        let key = format!("{}{key}", self.prefix);
        let mut read = Vec::new();
        loop {
            let Some(bytes) = self.get_range(&key, read.len() as u64, RANGE_SIZE)? else {
                return Ok(None);
            };
            read.extend_from_slice(&bytes);
            ensure!(
                read.len() as u64 <= size_max,
                "object {key:?} has more than {size_max} bytes"
            );
            if (bytes.len() as u64) < RANGE_SIZE {
                return Ok(Some(read));
            }
        }
    }

    /// Returns the SHA-256 of an object of a known size.
    ///
    /// # Errors
    /// If the object does not exist or has fewer bytes. Errors of the bucket.
    pub fn checksum(&mut self, key: &str, size: u64) -> Result<String> {
        let mut checksum = Checksum::new();
        self.get(key, size, &mut |bytes| {
            checksum.add(bytes);
            Ok(())
        })?;
        Ok(checksum.finish())
    }

    /// Lists the objects whose keys begin with a prefix, in any order.
    ///
    /// # Errors
    /// If there are more than [`limits::LISTED_MAX`]. Errors of the bucket.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<Object>> {
        self.pace.check()?;
        let whole = format!("{}{prefix}", self.prefix);
        let listed = match &mut self.backend {
            Backend::Filesystem(filesystem) => filesystem.list(&whole),
            Backend::S3(s3) => s3.list(&whole),
            Backend::Azure(azure) => azure.list(&whole),
        };
        let mut objects = listed.with_context(|| format!("list objects {whole:?}"))?;
        for object in &mut objects {
            object.key.drain(..self.prefix.len());
        }
        Ok(objects)
    }

    /// Lists the files of all blocks, complete or not, ascending by time.
    ///
    /// # Errors
    /// If there are more than [`limits::LISTED_MAX`] objects or [`BLOCKS_MAX`] blocks. Errors of the
    /// bucket.
    pub fn list_blocks(&mut self) -> Result<BTreeMap<Ulid, BlockFiles>> {
        let mut blocks: BTreeMap<Ulid, BlockFiles> = BTreeMap::new();
        for Object { key, size } in self.list("")? {
            let Some((name, path)) = key.split_once('/') else {
                continue;
            };
            let Some(ulid) = Ulid::parse(name) else {
                continue;
            };
            blocks
                .entry(ulid)
                .or_default()
                .insert(path.to_owned(), size);
        }
        ensure!(
            blocks.len() <= BLOCKS_MAX,
            "the bucket has more than {BLOCKS_MAX} blocks"
        );
        Ok(blocks)
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub fn delete(&mut self, key: &str) -> Result<()> {
        self.pace.check()?;
        let key = format!("{}{key}", self.prefix);
        let deleted = match &mut self.backend {
            Backend::Filesystem(filesystem) => filesystem.delete(&key),
            Backend::S3(s3) => s3.delete(&key),
            Backend::Azure(azure) => azure.delete(&key),
        };
        deleted.with_context(|| format!("delete object {key:?}"))
    }
}

#[cfg(test)]
mod tests;
