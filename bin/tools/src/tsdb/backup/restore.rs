//! `varve tsdb restore`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use varve_env::{Fs as _, RealFs};
use varve_objstore::ObjectStore;
use varve_system::machine::files::remove_dir;

use super::manifest::{Manifest, Manifests, open_destination};
use crate::tsdb::args::RestoreArgs;

/// Restores, lists or verifies a backup.
///
/// # Errors
/// If there is no such backup, a file of it is missing or damaged, or the directory is not empty.
pub(in crate::tsdb) fn restore(args: &RestoreArgs) -> Result<()> {
    let mut store = open_destination(&args.source)?;
    let manifests = Manifests::list(&mut store)?;
    if args.list {
        ensure!(
            !manifests.names().is_empty(),
            "{} has no backup",
            args.source
        );
        for name in manifests.names() {
            let manifest = Manifest::read(&mut store, name)?;
            println!(
                "{name} {} files, {} bytes",
                manifest.files.len(),
                manifest.size()
            );
        }
        return Ok(());
    }
    let found = match (&args.backup, args.at) {
        (Some(name), _) => Some(name.as_str()),
        (None, Some(time)) => manifests.at(time),
        (None, None) => manifests.newest(),
    };
    let name = found.with_context(|| match args.at {
        Some(time) => format!("{} has no backup at or before {time}", args.source),
        None => format!("{} has no backup", args.source),
    })?;
    let manifest = Manifest::read(&mut store, name)?;
    let dir = match &args.path {
        Some(dir) if !args.verify => dir,
        _ => {
            manifest.verify(&mut store)?;
            println!(
                "backup {name} is complete: {} files, {} bytes",
                manifest.files.len(),
                manifest.size()
            );
            return Ok(());
        }
    };
    restore_to(dir, &manifest, &mut store)?;
    println!(
        "restored backup {name} to {dir:?}: {} files, {} bytes",
        manifest.files.len(),
        manifest.size()
    );
    Ok(())
}

/// Restores a backup to a directory, which a server finds whole or not at all.
fn restore_to(dir: &Path, manifest: &Manifest, store: &mut ObjectStore) -> Result<()> {
    check_empty(dir)?;
    let unfinished = PathBuf::from(format!(
        "{}.restoring",
        dir.display().to_string().trim_end_matches('/')
    ));
    remove_dir(&unfinished)?;
    fs::create_dir_all(&unfinished).with_context(|| format!("create {unfinished:?}"))?;
    for file in &manifest.files {
        file.restore(store, &unfinished)?;
    }

    let mut dirs = BTreeSet::new();
    for file in &manifest.files {
        dirs.extend(Path::new(&file.path).ancestors().skip(1));
    }
    for below in dirs {
        RealFs
            .sync_dir(&unfinished.join(below))
            .with_context(|| format!("sync {below:?}"))?;
    }
    fs::rename(&unfinished, dir).with_context(|| format!("rename {unfinished:?} to {dir:?}"))?;
    let parent = dir
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    RealFs
        .sync_dir(parent)
        .with_context(|| format!("sync {parent:?}"))?;
    Ok(())
}

/// Fails unless a directory does not exist, or is empty and no mount point.
fn check_empty(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Ok(_) if is_mount_point(dir)? => bail!(
            "{dir:?} is a mount point, which a restored directory cannot replace; restore to a directory below it"
        ),
        Ok(mut entries) => ensure!(
            entries.next().is_none(),
            "{dir:?} is not empty; restore to a new directory"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("list {dir:?}")),
    }
    Ok(())
}

/// Returns `true` if a directory is on another file system than its parent.
fn is_mount_point(dir: &Path) -> Result<bool> {
    let mut devices = BTreeSet::new();
    for path in [dir, &dir.join("..")] {
        let metadata = fs::metadata(path);
        devices.insert(metadata.with_context(|| format!("look at {path:?}"))?.dev());
    }
    Ok(devices.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_restored_to_no_mount_point() {
        let error = check_empty(Path::new("/proc")).unwrap_err().to_string();
        assert!(error.contains("is a mount point"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        check_empty(dir.path()).unwrap();
        check_empty(&dir.path().join("new")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = check_empty(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }
}
