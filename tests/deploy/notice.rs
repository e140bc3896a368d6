//! NOTICE: the licences of everything that the binary contains. `VARVE_WRITE_NOTICE=1` writes the
//! file; the packages of the web page must be installed for that (`npm --prefix bin/ui ci`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{repository_path, text};

const TARGET: &str = "x86_64-unknown-linux-musl";
const HEAD: &str = "Varve
Copyright The Varve authors
Licensed under the Apache License, Version 2.0 (LICENSE)

The binary contains the crates and, in its web page, the packages that are listed here with their licences and
copyright notices. It contains the standard library of Rust (MIT OR Apache-2.0) and, if it is linked statically, musl
(MIT, Copyright 2005-2020 Rich Felker, et al.). The texts of the licences follow. The text of the Apache License is in
LICENSE.

";

/// A crate or package in the binary.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    name: String,
    version: String,
    licence: String,
    dir: PathBuf,
}

impl Part {
    fn new(of: &Value, dir: PathBuf) -> Self {
        let field = |name: &str| of[name].as_str().unwrap_or_default().to_owned();
        Self {
            name: field("name"),
            version: field("version"),
            licence: field("license"),
            dir,
        }
    }

    fn title(&self) -> String {
        format!("{} {} ({})", self.name, self.version, self.licence)
    }
}

/// Returns the crates that are linked into the binary. Build scripts and procedural macros are not.
fn crates() -> Vec<Part> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            TARGET,
        ])
        .current_dir(repository_path(""))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |of: &Value| of.as_array().unwrap().clone();
    let by_id = |all: &Value| -> BTreeMap<String, Value> {
        list(all)
            .into_iter()
            .map(|of| (of["id"].as_str().unwrap().to_owned(), of))
            .collect()
    };
    let (packages, nodes) = (
        by_id(&metadata["packages"]),
        by_id(&metadata["resolve"]["nodes"]),
    );
    let is_macro = |id: &str| {
        list(&packages[id]["targets"])
            .iter()
            .any(|target| target["kind"][0] == "proc-macro")
    };
    let mut linked = BTreeSet::new();
    let mut open = vec![metadata["resolve"]["root"].as_str().unwrap().to_owned()];
    while let Some(id) = open.pop() {
        if is_macro(&id) || !linked.insert(id.clone()) {
            continue;
        }
        let dependencies = list(&nodes[&id]["deps"]);
        let is_linked = |of: &&Value| {
            list(&of["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        };
        open.extend(
            dependencies
                .iter()
                .filter(is_linked)
                .map(|of| of["pkg"].as_str().unwrap().to_owned()),
        );
    }
    let foreign = linked
        .iter()
        .map(|id| &packages[id])
        .filter(|package| !package["source"].is_null());
    let dir = |package: &Value| {
        Path::new(package["manifest_path"].as_str().unwrap())
            .parent()
            .unwrap()
            .to_owned()
    };
    let mut parts: Vec<_> = foreign
        .map(|package| Part::new(package, dir(package)))
        .collect();
    parts.sort();
    parts
}

/// Returns the packages of the web page.
fn packages() -> Vec<Part> {
    let lock: Value = serde_json::from_str(&text("bin/ui/package-lock.json")).unwrap();
    let all = lock["packages"].as_object().unwrap();
    let shipped = all
        .iter()
        .filter(|(path, of)| !path.is_empty() && of["dev"] != true);
    let part = |(path, of): (&String, &Value)| {
        let name = path.trim_start_matches("node_modules/").to_owned();
        Part {
            name,
            ..Part::new(of, repository_path("bin/ui").join(path))
        }
    };
    shipped.map(part).collect()
}

/// Returns the texts of licences in the directory of a part and in up to two levels below, where
/// sources in C are.
fn licences(dir: &Path, depth: usize, found: &mut Vec<String>) {
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .collect();
    paths.sort_by_key(|entry| entry.as_ref().unwrap().path());
    for path in paths.into_iter().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().to_uppercase();
        if path.is_dir() && depth > 0 && name != "NODE_MODULES" {
            licences(&path, depth - 1, found);
        } else if path.is_file()
            && ["LICEN", "COPYING", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|of| name.starts_with(of))
        {
            found.push(String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned());
        }
    }
}

fn is_copyright(line: &str) -> bool {
    let line = line.trim_start_matches(['/', '*', '#', ' ']).to_lowercase();
    line.starts_with("copyright (c)") || line.starts_with("copyright ©") || {
        line.strip_prefix("copyright ")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    }
}

fn notice() -> String {
    let mut notice = HEAD.to_owned();
    // The texts without their copyright notices, by their words, with the parts that have them.
    let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for (title, parts) in [("Crates", crates()), ("Packages", packages())] {
        notice.push_str(&format!("{title}\n{}\n", "=".repeat(title.len())));
        for part in parts {
            notice.push_str(&format!("{}\n", part.title()));
            let mut files = Vec::new();
            licences(&part.dir, 2, &mut files);
            let mut owners = BTreeSet::new();
            for file in files {
                let (copyrights, body): (Vec<_>, Vec<_>) =
                    file.lines().partition(|line| is_copyright(line));
                let body = body.join("\n").trim().to_owned();
                let is_apache =
                    body.contains("Apache License") && body.contains("Grant of Patent License");
                let is_template = |line: &str| line.contains("[yyyy]") || line.contains("{yyyy}");
                owners.extend(
                    copyrights
                        .iter()
                        .map(|line| line.trim().to_owned())
                        .filter(|line| !is_template(line)),
                );
                if !is_apache && !body.is_empty() {
                    let words = body.split_whitespace().collect::<Vec<_>>().join(" ");
                    texts
                        .entry(words)
                        .or_insert((body, Vec::new()))
                        .1
                        .push(part.name.clone());
                }
            }
            for owner in owners.iter() {
                notice.push_str(&format!("    {owner}\n"));
            }
        }
        notice.push('\n');
    }
    for (body, mut names) in texts.into_values() {
        names.dedup();
        notice.push_str(&format!(
            "{}\nLicence of {}\n\n{body}\n\n",
            "-".repeat(72),
            names.join(", ")
        ));
    }
    notice.truncate(notice.trim_end().len());
    notice + "\n"
}

#[test]
fn notice_names_everything_in_the_binary() {
    if std::env::var_os("VARVE_WRITE_NOTICE").is_some() {
        std::fs::write(repository_path("NOTICE"), notice()).unwrap();
    }
    let notice = text("NOTICE");
    let lines: BTreeSet<_> = notice.lines().collect();
    let parts: Vec<_> = crates().into_iter().chain(packages()).collect();
    assert!(parts.len() > 100, "{}", parts.len());
    let missing: Vec<_> = parts
        .iter()
        .map(Part::title)
        .filter(|title| !lines.contains(title.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "write NOTICE again, it does not name {missing:?}"
    );
    // Licences that oblige to publish the source of the binary need a decision.
    let strict: Vec<_> = parts
        .iter()
        .filter(|part| part.licence.is_empty() || part.licence.contains("GPL"))
        .collect();
    assert!(
        strict.iter().all(|part| part.licence.contains(" OR ")),
        "{strict:?}"
    );
}
