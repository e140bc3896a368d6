//! The files under docs/deploy: they are valid, agree with the binary, and work where the tools to
//! run them exist.

mod components;
mod container;
mod coverage;
mod dashboards;
mod debian;
mod faults;
mod inhibition;
mod kubernetes;
mod migration;
mod mixin;
mod notice;
mod schemas;
mod simulation;
mod systemd;

use std::path::{Path, PathBuf};

/// Returns the path of a file of the repository.
fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the text of a file of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(repository_path(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}
