//! A directory or bucket of backups, and their manifests.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use varve_objstore::{BucketConfig, ObjectStore, ObjstoreMetrics, Pace};

/// Maximum size of a manifest: 300 bytes for each of a million files.
const SIZE_MAX: u64 = 300_000_000;
const VERSION: u32 = 1;
const DIR: &str = "manifests/";
const SUFFIX: &str = ".json";
/// Format of the name of a backup. Names are in the order of time.
const NAME: &str = "%Y%m%dT%H%M%S%3fZ";

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u32,
    /// The name of the backup: when its snapshot was complete.
    pub(super) name: String,
    /// The server.
    source: String,
    /// Ascending by path.
    pub(super) files: Vec<BackupFile>,
}

/// A file of a snapshot, and of the backup that stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackupFile {
    /// The path in the data directory.
    pub(super) path: String,
    pub(super) size: u64,
    /// When the file was last written.
    pub(super) modified: String,
    pub(super) sha256: String,
}

/// The names of all backups, oldest first.
#[derive(Debug)]
pub(super) struct Manifests(Vec<String>);

impl Manifests {
    pub(super) fn list(store: &mut ObjectStore) -> Result<Self> {
        let mut names = Vec::new();
        for object in store.list(DIR)? {
            let name = object.key.strip_prefix(DIR);
            if let Some(name) = name.and_then(|name| name.strip_suffix(SUFFIX)) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(Self(names))
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }

    pub(super) fn newest(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    /// Returns the newest backup that is not newer than a time.
    pub(super) fn at(&self, time: Timestamp) -> Option<&str> {
        let last = time.strftime(NAME).to_string();
        self.0
            .iter()
            .rfind(|name| **name <= last)
            .map(String::as_str)
    }

    /// Returns the names of old backups, and of the `keep` newest ones.
    pub(super) fn split(&self, keep: usize) -> (&[String], &[String]) {
        self.0.split_at(self.0.len().saturating_sub(keep))
    }
}

impl BackupFile {
    /// Returns `true` if size and time of another file are the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.size, &self.modified) == (other.size, &other.modified)
    }

    /// Downloads the file and compares its checksum.
    ///
    /// # Errors
    /// If it is missing or differs.
    pub(super) fn restore(&self, store: &mut ObjectStore, dir: &Path) -> Result<()> {
        let found = store.get_file(&content_key(&self.sha256), self.size, &dir.join(&self.path))?;
        self.check(&found)
    }

    /// Returns `true` if the stored contents have the checksum.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn is_stored(&self, store: &mut ObjectStore) -> Result<bool> {
        Ok(store.checksum(&content_key(&self.sha256), self.size)? == self.sha256)
    }

    /// Reads the file and compares its checksum.
    ///
    /// # Errors
    /// If it is missing or differs.
    pub(super) fn verify(&self, store: &mut ObjectStore) -> Result<()> {
        self.check(&store.checksum(&content_key(&self.sha256), self.size)?)
    }

    fn check(&self, found: &str) -> Result<()> {
        ensure!(
            found == self.sha256,
            "{} is damaged: its SHA-256 is {found}, not {}; `varve tsdb backup --verify` stores it again if the server \
             still has it",
            self.path,
            self.sha256
        );
        Ok(())
    }
}

impl Manifest {
    pub(super) fn new(created: Timestamp, source: &str, files: Vec<BackupFile>) -> Self {
        let name = created.strftime(NAME).to_string();
        Self {
            version: VERSION,
            name,
            source: source.to_owned(),
            files,
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// If it does not exist, is invalid or of another version.
    pub(super) fn read(store: &mut ObjectStore, name: &str) -> Result<Self> {
        let json = store
            .read(&key(name), SIZE_MAX)?
            .with_context(|| format!("there is no backup {name}"))?;
        let manifest: Self =
            serde_json::from_slice(&json).with_context(|| format!("the manifest of {name}"))?;
        ensure!(
            manifest.version == VERSION,
            "backup {name} has version {}, not {VERSION}",
            manifest.version
        );
        // A path must not lead out of the directory that is restored.
        for file in &manifest.files {
            let mut parts = file.path.split('/');
            ensure!(
                parts.all(|part| !matches!(part, "" | "." | "..")),
                "backup {name} has an invalid path"
            );
        }
        Ok(manifest)
    }

    /// Stores the manifest.
    ///
    /// # Errors
    /// Errors of the bucket, and if a backup of this name exists.
    pub(super) fn write(&self, store: &mut ObjectStore) -> Result<()> {
        let key = key(&self.name);
        ensure!(store.list(&key)?.is_empty(), "backup {} exists", self.name);
        let json = serde_json::to_vec_pretty(self)?;
        store.put(&key, json.len() as u64, &mut &*json)
    }

    /// Returns the file with a path.
    pub(super) fn file(&self, path: &str) -> Option<&BackupFile> {
        let found = self
            .files
            .binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().map(|idx| &self.files[idx])
    }

    /// Returns the sum of the sizes of all files.
    pub(super) fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Reads all files and compares their checksums.
    ///
    /// # Errors
    /// If a file is missing or differs. The message names it.
    pub(super) fn verify(&self, store: &mut ObjectStore) -> Result<()> {
        self.files.iter().try_for_each(|file| file.verify(store))
    }
}

/// Opens the directory or bucket of backups.
pub(super) fn open_destination(destination: &str) -> Result<ObjectStore> {
    ObjectStore::new(
        &BucketConfig::from_argument(destination)?,
        Pace::unlimited(),
        ObjstoreMetrics::unregistered(),
    )
}

/// Returns the key of a manifest.
pub(super) fn key(name: &str) -> String {
    format!("{DIR}{name}{SUFFIX}")
}

/// Returns the key of the contents of a file.
pub(super) fn content_key(sha256: &str) -> String {
    format!("files/{sha256}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_backup_that_is_not_newer_is_found() {
        let names = [
            "20260101T000000000Z",
            "20260102T000000500Z",
            "20260103T000000000Z",
        ]
        .map(str::to_owned);
        let manifests = Manifests(names.to_vec());
        let at = |time: &str| manifests.at(time.parse().unwrap());
        assert_eq!(at("2025-12-31T23:59:59Z"), None);
        assert_eq!(at("2026-01-01T00:00:00Z"), Some("20260101T000000000Z"));
        assert_eq!(
            at("2026-01-02T01:00:00.499+01:00"),
            Some("20260101T000000000Z")
        );
        assert_eq!(
            at("2026-01-02T01:00:00.5+01:00"),
            Some("20260102T000000500Z")
        );
        assert_eq!(at("2030-01-01T00:00:00Z"), manifests.newest());
        assert_eq!(
            (manifests.split(2).0, manifests.split(9).0.len()),
            (&names[..1], 0)
        );
    }
}
