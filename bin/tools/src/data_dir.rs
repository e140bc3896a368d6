//! Detects what a directory is: a data directory of Varve or of Prometheus, or something else.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use varve_env::RealFs;
use varve_prometheus::block::BlockReader;
use varve_prometheus::inspect::is_prometheus_directory;
use varve_tsdb::inspect;

use crate::server_args::path_not_a_server;

/// Maximum number of data directories that an error names.
const NAMED_MAX: usize = 3;

/// The program that writes to a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Varve,
    Prometheus,
}

/// What a directory contains.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Contents {
    /// A data directory.
    Data(Owner),
    /// One block of Prometheus.
    Block,
    /// Data directories with these names.
    DataDirectories(Vec<String>),
    Nothing,
    Other,
}

/// Returns a hint for a directory that is the URL of a server, else nothing.
fn server_hint(dir: &Path) -> &'static str {
    if path_not_a_server(dir.to_owned()).is_err() {
        "; this command reads a directory, not a server"
    } else {
        ""
    }
}

/// Returns the owner of a data directory. A directory with data of both is Varve's: see
/// [`ensure_not_foreign`].
///
/// # Errors
/// If the directory does not exist or has neither format. The error says what it is.
pub(super) fn owner(dir: &Path) -> Result<Owner> {
    let what = match contents(dir)? {
        None => bail!("data directory {dir:?} does not exist{}", server_hint(dir)),
        Some(Contents::Data(owner)) => {
            if owner == Owner::Varve && is_prometheus_directory(&RealFs, dir) {
                eprintln!(
                    "{dir:?} also has data of Prometheus, which only `varve tsdb import` reads there"
                );
            }
            return Ok(owner);
        }
        Some(Contents::Block) => {
            "it is a single block of Prometheus; name the directory that contains it".to_owned()
        }
        Some(Contents::DataDirectories(names)) => {
            format!(
                "it contains data directories, of which a command takes one: {}",
                names.join(", ")
            )
        }
        Some(Contents::Nothing) => "it is empty".to_owned(),
        Some(Contents::Other) => "it has no WAL and no block".to_owned(),
    };
    bail!("{dir:?} is a data directory neither of Prometheus nor of Varve: {what}")
}

/// Fails if a directory has no data of Prometheus.
///
/// # Errors
/// If the directory does not exist, or is something else. The error says what it is.
pub(super) fn ensure_prometheus(dir: &Path) -> Result<()> {
    // It may have data of Varve as well.
    if is_prometheus_directory(&RealFs, dir) || owner(dir)? == Owner::Prometheus {
        return Ok(());
    }
    bail!(
        "{dir:?} is a data directory of Varve, not of Prometheus; `varve tsdb export` writes its samples to blocks \
         that can be imported"
    )
}

/// Fails if a directory has no data of Varve.
///
/// # Errors
/// If the directory does not exist, or is another program's. The error says what it is.
pub(super) fn ensure_varve(dir: &Path) -> Result<()> {
    ensure_not_foreign(dir)?;
    owner(dir).map(drop)
}

/// Fails if a directory has data of Prometheus and none of Varve: a server that started there would
/// be empty, and its files would be among those of the other program. A directory that does not
/// exist, or has neither, is accepted.
///
/// # Errors
/// If the directory cannot be listed, or belongs to another program.
pub fn ensure_not_foreign(dir: &Path) -> Result<()> {
    let what = match contents(dir)? {
        Some(Contents::Data(Owner::Prometheus)) => "a data directory of Prometheus",
        Some(Contents::Block) => "a block of Prometheus",
        _ => return Ok(()),
    };
    bail!(
        "{dir:?} is {what}, not of Varve; `varve tsdb import` reads a data directory of Prometheus into another one"
    )
}

/// Fails if a directory has data of Varve, which does not read blocks of Prometheus there.
///
/// # Errors
/// If the directory cannot be listed, or is a data directory of Varve.
pub(super) fn ensure_takes_prometheus_blocks(dir: &Path) -> Result<()> {
    if contents(dir)? == Some(Contents::Data(Owner::Varve)) {
        bail!(
            "{dir:?} is a data directory of Varve, which does not read blocks of Prometheus there; write them to \
             another directory, from which `varve tsdb import` reads them"
        );
    }
    Ok(())
}

/// Returns the contents of a directory. `None` if it does not exist.
fn contents(dir: &Path) -> Result<Option<Contents>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("list {dir:?}")),
    };
    let mut data_directories = Vec::new();
    let mut is_empty = true;
    if let Some(owner) = owner_by_files(dir) {
        return Ok(Some(Contents::Data(owner)));
    }
    for entry in entries {
        let path = entry.with_context(|| format!("list {dir:?}"))?.path();
        is_empty = false;
        if owner_by_files(&path).is_some() && data_directories.len() < NAMED_MAX {
            data_directories.push(format!("{path:?}"));
        }
    }
    data_directories.sort_unstable();
    Ok(Some(if is_block(dir) {
        Contents::Block
    } else if !data_directories.is_empty() {
        Contents::DataDirectories(data_directories)
    } else if is_empty {
        Contents::Nothing
    } else {
        Contents::Other
    }))
}

fn owner_by_files(dir: &Path) -> Option<Owner> {
    if inspect::is_varve_directory(&RealFs, dir) {
        return Some(Owner::Varve);
    }
    is_prometheus_directory(&RealFs, dir).then_some(Owner::Prometheus)
}

/// Returns `true` for a block of Prometheus, also if its description is damaged.
fn is_block(dir: &Path) -> bool {
    BlockReader::read_meta(&RealFs, dir).is_ok()
        || (dir.join("index").is_file() && dir.join("chunks").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(dir: &Path, paths: &[&str]) {
        for path in paths {
            fs::create_dir_all(dir.join(path)).unwrap();
        }
    }

    #[test]
    fn owners_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        make(
            dir.path(),
            &["prometheus/chunks_head", "varve/wal/000000-002"],
        );
        assert!(owner(&dir.path().join("nowhere")).is_err());
        assert_eq!(
            owner(&dir.path().join("prometheus")).unwrap(),
            Owner::Prometheus
        );
        assert_eq!(owner(&dir.path().join("varve")).unwrap(), Owner::Varve);
    }

    /// All of these were said to have no WAL and no block.
    #[test]
    fn readers_say_what_a_directory_is() {
        let dir = tempfile::tempdir().unwrap();
        make(
            dir.path(),
            &[
                "empty",
                "other/a",
                "block/chunks",
                "parent/a/chunks_head",
                "parent/b/wal/000000-002",
            ],
        );
        fs::write(dir.path().join("block/index"), "").unwrap();
        for (name, reason) in [
            ("nowhere", "does not exist"),
            ("empty", "it is empty"),
            ("other", "it has no WAL and no block"),
            ("block", "it is a single block of Prometheus"),
            ("parent", "it contains data directories"),
            ("block/index", "list "),
        ] {
            let error = format!("{:#}", owner(&dir.path().join(name)).unwrap_err());
            assert!(error.contains(reason), "{name}: {error}");
        }
        let error = owner(&dir.path().join("parent")).unwrap_err().to_string();
        assert!(error.contains("parent/a\", \"") && error.contains("parent/b\""));
    }

    /// Writers created their files among those of Prometheus and found no data.
    #[test]
    fn writers_accept_no_directory_of_prometheus() {
        let dir = tempfile::tempdir().unwrap();
        make(
            dir.path(),
            &[
                "empty",
                "other/lost+found",
                "varve/blocks",
                "both/chunks_head",
                "both/wal/000000-002",
                "log/wal",
                "head/chunks_head",
                "blocks/01M7YQJC6W0PH11YAGQNK9T4Z6",
                "block/chunks",
            ],
        );
        fs::write(dir.path().join("varve/blocks/00000001.block"), "").unwrap();
        fs::write(dir.path().join("log/wal/00000000"), "").unwrap();
        fs::write(dir.path().join("block/index"), "").unwrap();
        for name in ["nowhere", "empty", "other", "varve", "both"] {
            ensure_not_foreign(&dir.path().join(name)).unwrap();
        }
        for name in ["log", "head", "blocks", "block"] {
            let error = ensure_not_foreign(&dir.path().join(name)).unwrap_err();
            assert!(error.to_string().contains("`varve tsdb import`"), "{error}");
        }
        for name in ["nowhere", "empty", "other", "log", "block"] {
            assert!(ensure_varve(&dir.path().join(name)).is_err(), "{name}");
            ensure_takes_prometheus_blocks(&dir.path().join(name)).unwrap();
        }
        for name in ["varve", "both"] {
            ensure_varve(&dir.path().join(name)).unwrap();
            assert!(ensure_takes_prometheus_blocks(&dir.path().join(name)).is_err());
        }
    }
}
