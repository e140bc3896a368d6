//! `varve tsdb restore`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use jiff::Timestamp;
use varve_fs::{Fs as _, RealFs};
use varve_system::machine::files::remove_dir;

use super::manifest::{Manifest, Manifests};
use super::open;

/// Arguments of `varve tsdb restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// Directory or bucket of the backups: a path, a file in the format of Thanos' objstore
    /// configuration, or s3://BUCKET/PREFIX
    #[arg(value_name = "BACKUPS")]
    source: String,

    /// New data directory. It must be empty or not exist
    #[arg(value_name = "DIR", required_unless_present_any = ["list", "verify"])]
    path: Option<PathBuf>,

    /// Newest backup that is not newer than this time (RFC 3339) [default: the newest]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Timestamp>,

    /// Name of the backup, as --list prints it
    #[arg(long, value_name = "NAME", conflicts_with = "at")]
    backup: Option<String>,

    /// List the backups
    #[arg(long, conflicts_with = "path")]
    list: bool,

    /// Only read all files of the backup and compare their checksums
    #[arg(long, conflicts_with = "path")]
    verify: bool,
}

/// Restores, lists or verifies a backup.
///
/// # Errors
/// If there is no such backup, a file of it is missing or damaged, or the directory is not empty.
pub(in crate::tsdb) fn restore(args: &RestoreArgs) -> Result<()> {
    let mut store = open(&args.source)?;
    let manifests = Manifests::list(&mut store)?;
    if args.list {
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
    let Some(dir) = args.path.as_deref().filter(|_| !args.verify) else {
        manifest.verify(&mut store)?;
        println!(
            "backup {name} is complete: {} files, {} bytes",
            manifest.files.len(),
            manifest.size()
        );
        return Ok(());
    };
    check_empty(dir)?;
    // A server must not find half of a backup.
    let unfinished = PathBuf::from(format!(
        "{}.restoring",
        dir.display().to_string().trim_end_matches('/')
    ));
    remove_dir(&unfinished)?;
    fs::create_dir_all(&unfinished).with_context(|| format!("create {unfinished:?}"))?;
    manifest
        .files
        .iter()
        .try_for_each(|file| file.restore(&mut store, &unfinished))?;
    let dirs = manifest
        .files
        .iter()
        .flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    for below in dirs.collect::<BTreeSet<_>>() {
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
    println!(
        "restored backup {name} to {dir:?}: {} files, {} bytes",
        manifest.files.len(),
        manifest.size()
    );
    Ok(())
}

/// Fails unless a directory does not exist or is empty.
fn check_empty(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => ensure!(entries.next().is_none(), "{dir:?} is not empty"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("list {dir:?}")),
    }
    Ok(())
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "expected a time such as 2026-01-31T12:00:00Z".to_owned())
}
