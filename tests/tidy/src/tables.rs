//! Tables of requests: each map and set of a struct is in the list `tables.txt`, with the reason why
//! two tenants do not meet there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{self, Token, group_len};
use crate::tree;

const LISTED: &str = include_str!("../tables.txt");
/// The section whose rows name the type of the key.
const HAS_TENANT: &str = "the key has the tenant";
/// The code that requests fill tables in.
const FOLDERS: [&str; 9] = [
    "bin/http/src",
    "bin/server/src",
    "ingest/otlp/src",
    "ingest/src",
    "query/advise/src/usage",
    "query/rules/src/arrival",
    "query/src/cache",
    "tsdb/src/shard/exemplars",
    "tsdb/src/store",
];
const TABLES: [&str; 7] = [
    "BTreeMap",
    "BTreeSet",
    "Families",
    "HashMap",
    "HashSet",
    "HashTable",
    "WideTable",
];

/// A row of the list.
struct Row<'a> {
    section: &'a str,
    field: &'a str,
    /// The type of the key, or the reason.
    note: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    let mut section = "";
    for line in LISTED.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let (field, note) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("tests/tidy/tables.txt: no reason: {line}"));
        rows.push(Row {
            section,
            field,
            note,
        });
    }
    rows
}

/// Returns the fields of structs that hold a map or a set, as `file struct.field`.
fn fields() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in FOLDERS.iter().flat_map(|folder| tree::files(folder, ".rs")) {
        if tree::is_test(&path) {
            continue;
        }
        let contents = tree::text(&path);
        let file = tree::name(&path);
        for field in fields_of(&source::code(&contents)) {
            found.insert(format!("{file} {field}"));
        }
    }
    found
}

/// Returns the fields of structs that hold a map or a set, as `struct.field`.
fn fields_of(tokens: &[Token<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        if tokens[start].text != "struct" {
            continue;
        }
        let item = &tokens[start..];
        let Some(open) = item
            .iter()
            .position(|token| ["{", ";", "("].contains(&token.text))
        else {
            continue;
        };
        if item[open].text != "{" {
            continue;
        }
        let body = &item[open + 1..open + group_len(&item[open..]) - 1];
        let mut field = "";
        for (idx, token) in body.iter().enumerate() {
            let is_type_of_field = body.get(idx + 1).is_some_and(|next| next.text == ":");
            if is_type_of_field {
                field = token.text;
            }
            let name = format!("{}.{field}", item[1].text);
            if TABLES.contains(&token.text) && found.last() != Some(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Returns the comment above the definition of a struct, and its fields.
fn definition(name: &str) -> Option<String> {
    for path in tree::sources() {
        let contents = tree::text(&path);
        let lines: Vec<_> = contents.lines().collect();
        for (idx, line) in lines.iter().enumerate() {
            let Some((_, after)) = line.split_once("struct ") else {
                continue;
            };
            if !after.starts_with(name) || after[name.len()..].starts_with(char::is_alphanumeric) {
                continue;
            }
            let n_above = lines[..idx]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("///") || line.starts_with("#["))
                .count();
            let n_below = lines[idx..]
                .iter()
                .take_while(|line| !line.starts_with('}') && !line.ends_with(';'))
                .count();
            return Some(lines[idx - n_above..idx + n_below].join("\n"));
        }
    }
    None
}

#[test]
fn each_table_of_requests_is_listed() {
    let found = fields();
    let mut listed = BTreeMap::new();
    for row in rows() {
        assert!(
            listed.insert(row.field, row.note).is_none(),
            "tests/tidy/tables.txt has {} twice",
            row.field
        );
    }
    let missing: Vec<_> = found
        .iter()
        .filter(|field| !listed.contains_key(&***field))
        .collect();
    assert!(
        missing.is_empty(),
        "not in tests/tidy/tables.txt: {missing:#?}\nif a client chooses the key, the tenant must be a part of it"
    );
    let outdated: Vec<_> = listed
        .keys()
        .filter(|field| !found.contains(**field))
        .collect();
    assert!(
        outdated.is_empty(),
        "remove from tests/tidy/tables.txt: {outdated:#?}"
    );
}

#[test]
fn keys_with_the_tenant_are_defined_with_it() {
    for row in rows() {
        if row.section != HAS_TENANT {
            continue;
        }
        let (file, _) = row.field.split_once(' ').unwrap();
        let contents = tree::text(&tree::root().join(Path::new(file)));
        let uses_type = source::code(&contents)
            .iter()
            .any(|token| token.text == row.note);
        assert!(uses_type, "{file} has no key of type {}", row.note);
        let definition = definition(row.note).unwrap_or_else(|| panic!("no struct {}", row.note));
        assert!(
            definition.contains("tenant"),
            "{} says nothing about the tenant:\n{definition}",
            row.note
        );
    }
}

#[test]
fn fields_with_tables_are_found() {
    let text = "struct A { a: u8, b: Mutex<HashMap<u8, BTreeSet<u8>>>, pub(super) c: BTreeMap<(A, B), u8> }
        struct B(HashMap<u8, u8>); struct C; struct D<'a> { d: &'a HashSet<u8> }
        fn f() { let e: HashMap<u8, u8> = g; }";
    assert_eq!(fields_of(&source::code(text)), ["A.b", "A.c", "D.d"]);
}
