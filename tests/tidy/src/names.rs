//! Public types that share a name with another one on the same dependency path.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;
use crate::tree::{self, Crate};

/// Names that every crate may define.
const EVERYWHERE: [&str; 3] = ["Error", "Result", "Options"];

/// Returns each name that two public types of one crate have, or those of a crate and of one that
/// it depends on.
pub(crate) fn defined_twice() -> Vec<String> {
    let crates = tree::crates();
    let mut definitions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in &crates {
        for name in public_types(package) {
            definitions.entry(name).or_default().push(&package.name);
        }
    }
    let is_twice = |places: &[&str]| {
        places.iter().enumerate().any(|(index, a)| {
            places[index + 1..]
                .iter()
                .any(|b| a == b || depends(&crates, a, b) || depends(&crates, b, a))
        })
    };
    definitions
        .into_iter()
        .filter(|(name, places)| !EVERYWHERE.contains(&&**name) && is_twice(places))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect()
}

fn public_types(package: &Crate) -> Vec<String> {
    let mut names = Vec::new();
    let folder = if package.folder.is_empty() {
        "bin/serve".to_owned()
    } else {
        format!("{}/src", package.folder)
    };
    for path in tree::files(&folder, ".rs") {
        if tree::is_test(&path) {
            continue;
        }
        let contents = tree::text(&path);
        for window in source::code(&contents).windows(3) {
            let [visibility, kind, name] = window else {
                continue;
            };
            let is_type = ["struct", "enum", "trait", "type"].contains(&kind.text);
            if visibility.text == "pub" && is_type {
                names.push(name.text.to_owned());
            }
        }
    }
    names
}

/// Returns `true` if one crate depends on another, directly or not.
fn depends(crates: &[Crate], user: &str, used: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut pending = vec![user];
    while let Some(name) = pending.pop() {
        if name == used && name != user {
            return true;
        }
        let package = crates.iter().find(|package| package.name == name);
        for dependency in package.iter().flat_map(|package| &package.dependencies) {
            if seen.insert(&**dependency) {
                pending.push(dependency);
            }
        }
    }
    false
}
