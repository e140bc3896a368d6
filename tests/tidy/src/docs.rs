//! The pages: the map of the code, links, formats.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::tree;

/// Returns the paths in the map of docs/architecture.md. A path that does not exist from the root
/// is beside the first one of its row.
fn mapped() -> Vec<PathBuf> {
    let page = tree::text(&tree::root().join("docs/architecture.md"));
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let in_row = |row: &str| {
        let names: Vec<_> = row.split('`').step_by(2).map(str::to_owned).collect();
        let beside = tree::root()
            .join(&names[0])
            .parent()
            .expect("a file has a folder")
            .to_owned();
        let place = move |name: &String| {
            [tree::root().join(name), beside.join(name)]
                .into_iter()
                .find(|path| path.exists())
        };
        names
            .iter()
            .map(|name| place(name).unwrap_or_else(|| panic!("{name} is not there")))
            .collect::<Vec<_>>()
    };
    rows.flat_map(in_row).collect()
}

#[test]
fn every_source_is_on_the_map() {
    let mapped = mapped();
    let is_there = |path: &Path| {
        mapped
            .iter()
            .any(|of| path == of || path.starts_with(of.with_extension("")))
    };
    let lost: Vec<_> = tree::sources()
        .into_iter()
        .filter(|path| !is_there(path))
        .collect();
    assert!(
        lost.is_empty(),
        "not on the map in docs/architecture.md: {lost:?}"
    );
}

#[test]
fn every_page_on_a_format_is_named_in_the_overview() {
    let overview: String = ["docs/README.md", "docs/architecture.md"]
        .iter()
        .map(|page| tree::text(&tree::root().join(page)))
        .collect();
    for page in tree::files("docs/format", ".md") {
        let name = page
            .strip_prefix(tree::root().join("docs"))
            .expect("it is under docs")
            .display()
            .to_string();
        assert!(
            overview.contains(&name),
            "neither docs/README.md nor docs/architecture.md names {name}"
        );
    }
}

/// A unit test of each format compares the example with the bytes that it writes, and reads them.
#[test]
fn every_page_on_a_format_has_an_example() {
    // The data directory is no file, and the example of a block has an index.
    let has_none = |page: &Path| page.ends_with("directory.md") || page.ends_with("block-index.md");
    for page in tree::files("docs/format", ".md")
        .iter()
        .filter(|page| !has_none(page))
    {
        assert!(
            tree::text(page).contains("\n## Example"),
            "{} has no example",
            page.display()
        );
    }
}

/// Returns the lines of a page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors of a page: those that GitHub derives from its headings, and its `<a id>`
/// tags.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let heading = line
            .starts_with('#')
            .then(|| line.trim_start_matches('#').trim())?;
        // Keeps the text of a link.
        let heading: String = heading
            .split("](")
            .map(|part| part.split_once(')').map_or(part, |(_, after)| after))
            .collect();
        let kept = heading.to_lowercase().replace(' ', "-");
        Some(
            kept.chars()
                .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
                .collect(),
        )
    };
    let own = page
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    prose(page).filter_map(heading).chain(own).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut dead = Vec::new();
    let pages = tree::files("docs", ".md").into_iter();
    for path in pages
        .chain(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| tree::root().join(name)))
    {
        let page = tree::text(&path);
        let targets = prose(&page)
            .flat_map(|line| line.split("](").skip(1))
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains(':')) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name(file)
            };
            let is_alive = file.exists()
                && (anchor.is_empty() || anchors(&tree::text(&file)).contains(anchor));
            if !is_alive {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}
