//! docs/mixin/training/coverage.md: what it names exists, and it names each alert of the training
//! pack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::mixin::{CLUSTER, TRAINING, files, list, rules, string, yaml};
use super::{repository_path, text};

const PAGE: &str = "docs/mixin/training/coverage.md";
const PACK: &str = "docs/mixin/training";

/// Returns the cells of the tables of the page, without heads.
fn rows() -> Vec<[String; 4]> {
    let page = text(PAGE);
    let lines = page.lines().filter(|line| line.starts_with("| "));
    let rows = lines.map(|line| {
        let cells = line
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned());
        let cells: Vec<_> = cells.collect();
        cells
            .try_into()
            .unwrap_or_else(|cells| panic!("not four cells: {cells:?}"))
    });
    rows.filter(|row: &[String; 4]| row[0] != "what" && row[0] != "---")
        .collect()
}

/// Returns the words in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the names of alerts and records of the pack and of the cluster's rules.
fn rule_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut paths = vec![CLUSTER.to_owned()];
    for path in files(&repository_path(PACK), ".yaml") {
        let name = path.file_name().unwrap().to_str().unwrap();
        paths.push(format!("{PACK}/{name}"));
    }
    for path in paths {
        for rule in rules(&path) {
            names.insert(string(&rule["alert"]).to_owned() + string(&rule["record"]));
        }
    }
    names
}

/// Returns the titles of panels by file of the dashboard.
fn panel_titles() -> BTreeMap<String, BTreeSet<String>> {
    let mut titles = BTreeMap::new();
    for dir in [PACK, "docs/mixin/cluster"] {
        for path in files(&repository_path(dir).join("dashboards"), ".json") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let dashboard: Value =
                serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let panels = list(&dashboard["panels"]).iter();
            let panels = panels.filter(|panel| panel["type"] != "row");
            let of_dashboard = panels.map(|panel| string(&panel["title"]).to_owned());
            titles.insert(name, of_dashboard.collect());
        }
    }
    titles
}

/// Returns `true` if a test exists: `file.rs::function` beside this file, `file.mjs: title` in
/// tests/ui, or `file.yaml: beginning of the name` beside the page.
fn is_test(name: &str) -> bool {
    if let Some((file, function)) = name.split_once(".rs::") {
        return text(&format!("tests/deploy/{file}.rs")).contains(&format!("\nfn {function}()"));
    }
    if let Some((file, title)) = name.split_once(".mjs: ") {
        return text(&format!("tests/ui/{file}.mjs")).contains(&format!("test(\"{title}\""));
    }
    let Some((file, beginning)) = name.split_once(".yaml: ") else {
        return false;
    };
    let tests = yaml(&format!("{PACK}/{file}.yaml"));
    list(&tests["tests"])
        .iter()
        .any(|test| string(&test["name"]).starts_with(beginning))
}

#[test]
fn what_the_table_names_exists() {
    let names = rule_names();
    let titles = panel_titles();
    let mut unknown = Vec::new();
    let rows = rows();
    for row in &rows {
        let [what, rules, panels, tests] = row;
        for name in quoted(rules) {
            if !names.contains(name) {
                unknown.push(format!("{what}: rule {name}"));
            }
        }
        for name in quoted(panels) {
            let panel = name.split_once(": ");
            let is_there = panel.is_some_and(|(file, title)| {
                titles
                    .get(file)
                    .is_some_and(|titles| titles.contains(title))
            });
            if !is_there {
                unknown.push(format!("{what}: panel {name}"));
            }
        }
        for name in quoted(tests) {
            if !is_test(name) {
                unknown.push(format!("{what}: test {name}"));
            }
        }
        // A line without a test says that it is missing.
        assert!(tests.contains('`') || tests == "missing", "{what}: no test");
    }
    assert!(
        unknown.is_empty(),
        "they do not exist:\n{}",
        unknown.join("\n")
    );
    assert!(rows.len() > 50, "{} rows", rows.len());
}

#[test]
fn the_table_names_each_alert_of_the_training_pack() {
    let rows = rows();
    let named: BTreeSet<_> = rows.iter().flat_map(|row| quoted(&row[1])).collect();
    for rule in rules(TRAINING) {
        let alert = string(&rule["alert"]);
        assert!(
            alert.is_empty() || named.contains(alert),
            "{PAGE} does not name {alert}"
        );
    }
}
