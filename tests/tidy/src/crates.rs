//! Dependencies between crates, and what their roots look like.

use std::collections::BTreeSet;

use crate::tree::{self, Crate};

/// Each crate and the crates of the workspace that it depends on; then each foreign crate that
/// decides a layer, and the crates that may depend on it.
const ARROWS: &str = include_str!("../arrows.txt");

fn rows() -> impl Iterator<Item = (&'static str, BTreeSet<&'static str>)> {
    ARROWS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, others) = line.split_once(':').unwrap();
            (name, others.split_whitespace().collect())
        })
}

/// A new arrow between crates is a decision, see docs/decisions/crates.
#[test]
fn arrows_between_crates_hold() {
    for Crate {
        name, dependencies, ..
    } in tree::crates()
    {
        let found: BTreeSet<_> = dependencies
            .iter()
            .map(String::as_str)
            .filter(|dependency| dependency.starts_with("varve"))
            .collect();
        let row = rows().find(|(listed, _)| *listed == name);
        let (_, listed) = row.unwrap_or_else(|| panic!("tests/tidy/arrows.txt has no {name}"));
        assert_eq!(
            found, listed,
            "tests/tidy/arrows.txt, dependencies of {name}"
        );
    }
}

#[test]
fn layers_hold() {
    let crates = tree::crates();
    for (foreign, users) in rows().filter(|(name, _)| !name.starts_with("varve")) {
        for Crate {
            name, dependencies, ..
        } in &crates
        {
            let depends = dependencies.iter().any(|dependency| dependency == foreign);
            assert!(
                !depends || users.contains(&**name),
                "{name} depends on {foreign}, see tests/tidy/arrows.txt"
            );
        }
    }
}

#[test]
fn crate_roots_export_at_most_20_names_besides_modules() {
    for package in tree::crates() {
        let Some(lib) = package.lib() else { continue };
        let source = tree::text(&lib);
        let folder = format!("{}/src", package.folder);
        let is_module = |name: &str| {
            ["", "/mod"]
                .iter()
                .any(|end| !tree::files(&folder, &format!("/{name}{end}.rs")).is_empty())
        };
        let is_counted = |name: &&str| !name.is_empty() && !is_module(name);
        let exported = source
            .split("\npub use ")
            .skip(1)
            .filter_map(|rest| rest.split(';').next())
            // The last part of a path, or what is in its braces.
            .flat_map(|path| path.split(['{', '}', ',']))
            .map(|part| part.rsplit("::").next().unwrap_or(part).trim())
            .filter(is_counted);
        let items = source.lines().filter(|line| {
            line.starts_with("pub ")
                && !line.starts_with("pub use ")
                && !line.starts_with("pub mod ")
        });
        let n_names = exported.count() + items.count();
        assert!(n_names <= 20, "{} exports {n_names} names", package.name);
    }
}

#[test]
fn crates_forbid_unsafe_code() {
    let libraries = tree::crates();
    // It counts allocations, so it implements an allocator.
    let roots = libraries
        .iter()
        .filter(|package| package.name != "varve-accounting")
        .filter_map(Crate::lib);
    let programs = ["bin/main.rs", "tests/main.rs"].map(|file| tree::root().join(file));
    for file in roots.chain(programs) {
        let is_forbidden = tree::text(&file).contains("#![forbid(unsafe_code)]");
        assert!(is_forbidden, "{}", tree::name(&file));
    }
}
