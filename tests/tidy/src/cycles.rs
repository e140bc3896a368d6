//! Cycles of imports between the files of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{self, Token};
use crate::tree;

/// The modules of a crate that have a file, by their path: `["wal", "segment"]`.
type Modules = BTreeMap<Vec<String>, usize>;

/// Returns the files of each cycle, one row per cycle.
pub(crate) fn all() -> Vec<String> {
    let crates = tree::crates();
    let folders = crates.iter().map(|package| match &*package.folder {
        "" => "bin".to_owned(),
        folder => format!("{folder}/src"),
    });
    folders.flat_map(|folder| of_crate(&folder)).collect()
}

fn of_crate(folder: &str) -> Vec<String> {
    let mut modules = Modules::new();
    let mut sources = Vec::new();
    for path in tree::files(folder, ".rs") {
        // The crates below bin/ are crates of their own.
        let is_own = folder != "bin" || !tree::name(&path).contains("/src/");
        if is_own && !tree::is_test(&path) {
            modules.insert(
                module_path(&tree::root().join(folder), &path),
                sources.len(),
            );
            sources.push(path);
        }
    }

    let mut imports = vec![BTreeSet::new(); sources.len()];
    for (module, &index) in &modules {
        let contents = tree::text(&sources[index]);
        for path in imported(&source::code(&contents)) {
            if let Some(target) = resolve(&modules, module, &path)
                && target != index
            {
                imports[index].insert(target);
            }
        }
    }

    let mut rows = Vec::new();
    for cycle in cycles(&imports) {
        let names: Vec<_> = cycle
            .iter()
            .map(|&file| tree::name(&sources[file]))
            .collect();
        rows.push(names.join(" "));
    }
    rows
}

/// Returns the path of the module in a file: `src/wal/mod.rs` and `src/wal.rs` hold `wal`.
fn module_path(folder: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(folder).unwrap().with_extension("");
    let mut parts: Vec<_> = relative
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&&**last))
    {
        parts.pop();
    }
    parts
}

/// Returns the paths of all `use` declarations, one for each name.
fn imported(tokens: &[Token<'_>]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = tokens;
    while let Some(start) = rest.iter().position(|token| token.text == "use") {
        rest = &rest[start + 1..];
        let end = rest
            .iter()
            .position(|token| token.text == ";")
            .unwrap_or(rest.len());
        expand(&rest[..end], Vec::new(), &mut paths);
        rest = &rest[end..];
    }
    paths
}

/// Expands `a::{b, c::d}` to `a::b` and `a::c::d`.
fn expand(tree: &[Token<'_>], prefix: Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut path = prefix;
    let mut rest = tree;
    while let Some((first, after)) = rest.split_first() {
        match first.text {
            "::" => {}
            // The new name of an import says nothing about where it comes from.
            "as" => break,
            "{" => {
                let inside = &rest[1..source::group_len(rest) - 1];
                for part in split_at_commas(inside) {
                    expand(part, path.clone(), paths);
                }
                return;
            }
            name => path.push(name.to_owned()),
        }
        rest = after;
    }
    if !path.is_empty() {
        paths.push(path);
    }
}

fn split_at_commas<'a>(tokens: &'a [Token<'a>]) -> Vec<&'a [Token<'a>]> {
    let mut depth = 0;
    tokens
        .split(|token| {
            match token.text {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            token.text == "," && depth == 0
        })
        .collect()
}

/// Returns the file that an import in `module` leads to.
fn resolve(modules: &Modules, module: &[String], path: &[String]) -> Option<usize> {
    let mut absolute: Vec<String>;
    let mut rest = path;
    match &*path[0] {
        "crate" => {
            absolute = Vec::new();
            rest = &rest[1..];
        }
        "self" | "super" => {
            absolute = module.to_vec();
            while let Some((first, after)) = rest.split_first() {
                match &**first {
                    "self" => {}
                    "super" => {
                        absolute.pop();
                    }
                    _ => break,
                }
                rest = after;
            }
        }
        child => {
            absolute = module.to_vec();
            absolute.push(child.to_owned());
            if !modules.contains_key(&absolute) {
                return None;
            }
            rest = &rest[1..];
        }
    }
    for part in rest {
        absolute.push(part.clone());
        if !modules.contains_key(&absolute) {
            absolute.pop();
            break;
        }
    }
    modules.get(&absolute).copied()
}

/// Returns the strongly connected components with more than one file.
fn cycles(imports: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<_> = (0..imports.len())
        .map(|start| reachable(imports, start))
        .collect();
    let mut found = BTreeSet::new();
    for (file, targets) in reached.iter().enumerate() {
        let cycle: Vec<_> = (0..imports.len())
            .filter(|&other| targets.contains(&other) && reached[other].contains(&file))
            .collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    found.into_iter().collect()
}

fn reachable(imports: &[BTreeSet<usize>], start: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![start];
    while let Some(file) = pending.pop() {
        for &target in &imports[file] {
            if seen.insert(target) {
                pending.push(target);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_declarations_are_expanded() {
        let tokens = source::code("use crate::{a, b::{c, d as e}}; use super::*;");
        let paths: Vec<_> = imported(&tokens)
            .iter()
            .map(|path| path.join("::"))
            .collect();
        assert_eq!(
            paths,
            ["crate::a", "crate::b::c", "crate::b::d", "super::*"]
        );
    }

    #[test]
    fn imports_lead_to_the_innermost_module_with_a_file() {
        let path = |text: &str| -> Vec<String> {
            let parts = text.split("::").filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let names = ["", "a", "a::b", "c"];
        let modules = names
            .iter()
            .enumerate()
            .map(|(index, name)| (path(name), index))
            .collect();
        for (module, import, expected) in [
            ("a", "b::Type", Some(2)),
            ("a::b", "super::Type", Some(1)),
            ("a::b", "super::super::c::f", Some(3)),
            ("c", "crate::a::b::Type", Some(2)),
            ("c", "std::fmt", None),
        ] {
            let found = resolve(&modules, &path(module), &path(import));
            assert_eq!(found, expected, "{import} in {module}");
        }
    }

    #[test]
    fn files_that_reach_each_other_are_a_cycle() {
        let imports = [vec![1], vec![2], vec![1, 3], vec![]].map(BTreeSet::from_iter);
        assert_eq!(cycles(&imports), [vec![1, 2]]);
    }
}
