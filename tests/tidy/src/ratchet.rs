//! Bounds that may only fall: how often each pattern occurs in the sources without tests.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cycles;
use crate::exceptions;
use crate::names;
use crate::patterns::PATTERNS;
use crate::source::{self, functions, n_code_lines};
use crate::tree;

const RATCHET: &str = include_str!("../ratchet.txt");
/// A longer function or file is counted.
const FUNCTION_LINES_MAX: usize = 60;
const FILE_LINES_MAX: usize = 400;

/// Where each counted thing occurs, by its name. A row begins with its place; what its size is
/// follows in parentheses.
pub(crate) type Found = BTreeMap<&'static str, Vec<String>>;

#[test]
fn counts_only_fall() {
    let mut found = found();
    let mut wrong = exceptions::take_from(&mut found);
    for (name, occurrences) in &found {
        let n_found = occurrences.len();
        let bound = bound(name);
        if n_found > bound {
            let list = occurrences.join("\n  ");
            wrong.push(format!("{name}: {n_found}, more than {bound}\n  {list}"));
        } else if n_found < bound {
            wrong.push(format!(
                "{name}: {n_found}: lower {bound} in tests/tidy/ratchet.txt"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn bound(name: &str) -> usize {
    let row = RATCHET
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let row = row.unwrap_or_else(|| panic!("tests/tidy/ratchet.txt has no {name}"));
    row.parse().unwrap()
}

fn found() -> Found {
    let mut found = Found::new();
    for (name, _) in PATTERNS {
        found.insert(name, Vec::new());
    }
    found.insert("long functions", Vec::new());
    found.insert("long files", Vec::new());
    for path in tree::sources() {
        if !tree::is_test(&path) {
            add_file(&path, &mut found);
        }
    }
    found.insert("import cycles", cycles::all());
    found.insert("public names defined twice", names::defined_twice());
    found
}

fn add_file(path: &Path, found: &mut Found) {
    let contents = tree::text(path);
    let tokens = source::code(&contents);
    let file = tree::name(path);
    for (name, n_matches) in PATTERNS {
        let here = std::iter::repeat_n(file.clone(), n_matches(&tokens));
        found.entry(name).or_default().extend(here);
    }
    for function in functions(&tokens) {
        if function.n_code_lines > FUNCTION_LINES_MAX {
            let row = format!("{file} {} ({} lines)", function.name, function.n_code_lines);
            found.entry("long functions").or_default().push(row);
        }
    }
    let n_lines = n_code_lines(&tokens);
    if n_lines > FILE_LINES_MAX {
        let row = format!("{file} ({n_lines} lines)");
        found.entry("long files").or_default().push(row);
    }
}
