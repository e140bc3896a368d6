//! `varve tsdb backup` and `varve tsdb restore`: a snapshot of a running server in a directory or a
//! bucket, and back.
//!
//! ```text
//! files/<SHA-256>       contents of a file
//! manifests/<time>.json what one backup consists of: paths, sizes and checksums
//! ```
//! A file is stored once, however many backups have it. Blocks never change, so a backup stores
//! only new ones.
//!
//! Crash: a backup exists once its manifest does, which is written last. The next backup uses the
//! files of an interrupted one, and removes its snapshot.

mod manifest;
mod restore;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use varve_advise::counted;
use varve_client::Client;
use varve_env::{Fs as _, Lock, RealFs};
use varve_objstore::{ObjectStore, file_checksum};
use varve_system::machine::files::is_locked;

pub(super) use restore::restore;

use super::args::BackupArgs;
use manifest::{BackupFile, Manifest, Manifests, content_key, open_destination};

/// Marks a snapshot that a backup created, in its directory. The backup has a lock on it.
const MARK: &str = "backup-in-progress";
/// Maximum number of files of a backup.
const FILES_MAX: usize = 1_000_000;

/// A snapshot with a lock on its mark. Removes it on drop.
struct Snapshot {
    dir: PathBuf,
    _lock: Box<dyn Lock>,
}

impl Snapshot {
    /// # Errors
    /// If another backup uses the snapshot.
    fn lock(dir: PathBuf) -> Result<Self> {
        let lock = RealFs
            .lock(&dir.join(MARK))
            .with_context(|| format!("a backup is running: lock {dir:?}"))?;
        Ok(Self { dir, _lock: lock })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove the snapshot {:?}: {error}", self.dir);
        }
    }
}

/// Backs up a running server.
///
/// # Errors
/// If the server cannot create a snapshot, a file cannot be stored or read back, or a stored file
/// still differs after it was stored again.
pub(super) fn backup(args: &BackupArgs) -> Result<()> {
    let mut store = open_destination(&args.destination)?;
    let mut client = args.access.client(&args.url)?;
    // Locked until old files are removed. Otherwise this backup could remove files that another one
    // has just stored.
    let snapshot = create_snapshot(&mut client, args.path.as_deref())?;
    let manifests = Manifests::list(&mut store)?;
    let previous = match manifests.newest() {
        Some(name) => Some(Manifest::read(&mut store, name)?),
        None => None,
    };
    let created = Timestamp::now();
    let files = snapshot_files(&snapshot.dir, previous.as_ref())?;
    let stored = store_files(&mut store, &snapshot, &files, args.verify)?;

    // A backup that could not be verified is not listed.
    let manifest = Manifest::new(created, &args.url.to_string(), files);
    manifest.write(&mut store)?;
    println!(
        "backup {}: {}, {} bytes",
        manifest.name,
        counted(manifest.files.len(), "file"),
        manifest.size()
    );
    println!(
        "stored {}, {} bytes",
        counted(stored.n_new, "new file"),
        stored.new_bytes
    );
    if args.verify {
        println!(
            "verified {}, replaced {}",
            counted(manifest.files.len(), "file"),
            counted(stored.n_replaced, "damaged file")
        );
    }
    match args.keep {
        Some(keep) => remove_old(&mut store, keep as usize),
        None => Ok(()),
    }
}

/// What a backup has stored.
#[derive(Debug, Default)]
struct Stored {
    n_new: usize,
    new_bytes: u64,
    /// Files that the destination had, damaged.
    n_replaced: usize,
}

/// Stores the files that the destination does not have. With `verify`, all files are read back, and
/// damaged ones are replaced.
fn store_files(
    store: &mut ObjectStore,
    snapshot: &Snapshot,
    files: &[BackupFile],
    verify: bool,
) -> Result<Stored> {
    let mut known = HashSet::new();
    for object in store.list("files/")? {
        known.insert((object.key, object.size));
    }

    let mut stored = Stored::default();
    for file in files {
        let key = content_key(&file.sha256);
        let path = snapshot.dir.join(&file.path);
        let is_new = known.insert((key.clone(), file.size));
        if !is_new {
            if !verify || file.is_stored(store)? {
                continue;
            }
            let is_intact = file_checksum(&path)? == file.sha256;
            ensure!(
                is_intact,
                "{key} and {} of the server are damaged: run `varve wal verify` there",
                file.path
            );
        }

        store.put_file(&key, &path)?;
        if verify {
            file.verify(store)?;
        }
        if is_new {
            stored.n_new += 1;
            stored.new_bytes += file.size;
        } else {
            stored.n_replaced += 1;
        }
    }
    Ok(stored)
}

/// Creates a snapshot on the server, and removes snapshots of interrupted backups.
fn create_snapshot(client: &mut Client, data_dir: Option<&Path>) -> Result<Snapshot> {
    let data_dir = match data_dir {
        Some(dir) => dir.to_owned(),
        None => data_dir_of_server(client)?,
    };
    // Checked first, so that an error leaves no snapshot behind.
    ensure!(
        is_locked(&data_dir),
        "data directory {data_dir:?} is not locked by a server on this machine; run the backup on the machine of the \
         server, and set --path to the absolute path of its data directory"
    );
    let snapshots = data_dir.join("snapshots");
    remove_interrupted(&snapshots)?;

    let created = client.post_data("/api/v1/admin/tsdb/snapshot", "")?;
    let name = created["name"]
        .as_str()
        .context("the server does not tell the name of the snapshot")?;
    let dir = snapshots.join(name);
    if !dir.is_dir() {
        bail!(
            "snapshot {name} is not in {snapshots:?}, which belongs to another server; set --path to the data \
             directory of this one, and remove the snapshot there"
        );
    }
    Snapshot::lock(dir)
}

/// Returns the data directory that the server names.
fn data_dir_of_server(client: &mut Client) -> Result<PathBuf> {
    let flags = client.get_data("/api/v1/status/flags")?;
    let path = flags["storage.tsdb.path"]
        .as_str()
        .context("the server does not tell its data directory")?;
    Ok(PathBuf::from(path))
}

/// Removes the snapshots of interrupted backups.
///
/// # Errors
/// If a backup is running.
fn remove_interrupted(snapshots: &Path) -> Result<()> {
    for entry in fs::read_dir(snapshots).into_iter().flatten() {
        let dir = entry.with_context(|| format!("list {snapshots:?}"))?.path();
        if dir.join(MARK).is_file() {
            // A running backup has the lock. Dropping the snapshot removes its directory.
            drop(Snapshot::lock(dir)?);
        }
    }
    Ok(())
}

/// Lists the files of a snapshot with their checksums. A file that has not changed since the
/// previous backup is not read.
fn snapshot_files(snapshot: &Path, previous: Option<&Manifest>) -> Result<Vec<BackupFile>> {
    let mut files = Vec::new();
    let mut dirs = vec![snapshot.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("list {dir:?}"))? {
            let path = entry.with_context(|| format!("list {dir:?}"))?.path();
            let metadata = path.metadata().with_context(|| format!("read {path:?}"))?;
            if metadata.is_dir() {
                dirs.push(path);
                continue;
            }
            let relative = path.strip_prefix(snapshot).expect("the walk begins there");
            let relative = relative
                .to_str()
                .with_context(|| format!("{path:?} is not text"))?;
            if relative == MARK {
                continue;
            }
            let modified = Timestamp::try_from(
                metadata
                    .modified()
                    .with_context(|| format!("read {path:?}"))?,
            )?;
            let mut file = BackupFile {
                path: relative.to_owned(),
                size: metadata.len(),
                modified: modified.to_string(),
                sha256: String::new(),
            };
            let known = previous
                .and_then(|previous| previous.file(relative))
                .filter(|known| known.is_like(&file));
            file.sha256 = match known {
                Some(known) => known.sha256.clone(),
                None => file_checksum(&path)?,
            };
            files.push(file);
            ensure!(
                files.len() <= FILES_MAX,
                "the snapshot has more than {FILES_MAX} files"
            );
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Removes all but the newest backups, and files that no backup needs.
fn remove_old(store: &mut ObjectStore, keep: usize) -> Result<()> {
    let manifests = Manifests::list(store)?;
    let (old, kept) = manifests.split(keep);
    let mut needed = HashSet::new();
    for name in kept {
        needed.extend(
            Manifest::read(store, name)?
                .files
                .into_iter()
                .map(|file| content_key(&file.sha256)),
        );
    }
    // Manifests first: a backup without all of its files must not be listed.
    for name in old {
        store.delete(&manifest::key(name))?;
    }
    let mut n_removed = 0;
    for object in store.list("files/")? {
        if !needed.contains(&object.key) {
            store.delete(&object.key)?;
            n_removed += 1;
        }
    }
    println!(
        "removed {} and {}",
        counted(old.len(), "old backup"),
        counted(n_removed, "file")
    );
    Ok(())
}
