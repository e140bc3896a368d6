//! Where things are: the root of the checkout, the crates, their sources.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Returns the root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the contents of a file of the checkout.
pub(crate) fn text(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns a path as it is written from the root of the checkout.
pub(crate) fn name(path: &Path) -> String {
    let name = path.strip_prefix(root()).unwrap_or(path);
    name.display().to_string()
}

/// Returns the files under a folder that end in `suffix`, in order.
pub(crate) fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !is_generated(&path) {
                    folders.push(path);
                }
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn is_generated(folder: &Path) -> bool {
    ["target", "node_modules"]
        .iter()
        .any(|name| folder.ends_with(name))
        || folder.ends_with("ui/dist")
        || folder.ends_with("tests/data")
}

/// Returns all Rust sources of the checkout.
pub(crate) fn sources() -> Vec<PathBuf> {
    ["tsdb", "ingest", "query", "bin", "benches", "tests"]
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .collect()
}

/// Returns `true` for unit tests, black-box tests, benches and examples.
pub(crate) fn is_test(path: &Path) -> bool {
    let name = name(path);
    let is_in = |folder: &str| {
        name.starts_with(&format!("{folder}/")) || name.contains(&format!("/{folder}/"))
    };
    name.ends_with("tests.rs")
        || ["tests", "examples"].into_iter().any(is_in)
        // The criterion benches; `benches/fleet` is a program.
        || (is_in("benches") && !is_in("benches/fleet"))
}

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// The name of the package, such as `varve-tsdb`.
    pub(crate) name: String,
    /// Its folder from the root; empty for the package at the root.
    pub(crate) folder: String,
    /// The names of its dependencies, without those of its tests.
    pub(crate) dependencies: Vec<String>,
}

impl Crate {
    /// Returns the file at the root of a library, or `None` for a program.
    pub(crate) fn lib(&self) -> Option<PathBuf> {
        let lib = root().join(&self.folder).join("src/lib.rs");
        lib.is_file().then_some(lib)
    }
}

/// Returns all members of the workspace.
pub(crate) fn crates() -> Vec<Crate> {
    let workspace = text(&root().join("Cargo.toml"));
    let (_, members) = workspace.split_once("\nmembers = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let folders = members.split('"').skip(1).step_by(2);
    [""].into_iter().chain(folders).map(read_crate).collect()
}

fn read_crate(folder: &str) -> Crate {
    let manifest = text(&root().join(folder).join("Cargo.toml"));
    let (_, package) = manifest.split_once("[package]").unwrap();
    let (_, name) = package.split_once("name = \"").unwrap();
    let (name, _) = name.split_once('"').unwrap();

    let dependencies = manifest
        .split_once("\n[dependencies]\n")
        .unwrap_or_default();
    let section = dependencies.1.split("\n[").next().unwrap_or_default();
    let names = section
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()))
        .filter_map(|line| line.split(['.', ' ', '=']).next());
    Crate {
        name: name.to_owned(),
        folder: folder.to_owned(),
        dependencies: names.map(str::to_owned).collect(),
    }
}
