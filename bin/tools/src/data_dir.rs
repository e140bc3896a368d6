//! Detects whether a data directory is Varve's or Prometheus'.

use std::path::Path;

use anyhow::{Result, bail};
use varve_env::RealFs;
use varve_prometheus::inspect::is_prometheus_directory;
use varve_tsdb::inspect;

/// The program that writes to a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Varve,
    Prometheus,
}

/// Returns the owner of a data directory.
///
/// # Errors
/// If the directory does not exist or has neither format.
pub(super) fn owner(dir: &Path) -> Result<Owner> {
    if !dir.is_dir() {
        bail!("data directory {dir:?} does not exist");
    }
    if inspect::is_varve_directory(&RealFs, dir) {
        return Ok(Owner::Varve);
    }
    if is_prometheus_directory(&RealFs, dir) {
        return Ok(Owner::Prometheus);
    }
    bail!(
        "{dir:?} is a data directory neither of Prometheus nor of Varve: it has no WAL and no block"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        assert!(owner(&dir.path().join("nowhere")).is_err());
        assert!(owner(dir.path()).is_err());
        make("prometheus/chunks_head");
        make("varve/wal/000000-002");
        assert_eq!(
            owner(&dir.path().join("prometheus")).unwrap(),
            Owner::Prometheus
        );
        assert_eq!(owner(&dir.path().join("varve")).unwrap(), Owner::Varve);
    }
}
