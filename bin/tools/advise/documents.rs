//! Input files and directories, and their documents: JSON, and YAML with any number of documents.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize as _;
use serde_json::Value;

use crate::machine::files::read_text;

/// Maximum number of files.
const FILES_MAX: usize = 20_000;
/// Maximum size of a file.
const FILE_SIZE_MAX: u64 = 128 << 20;
/// Maximum depth of directories, as symbolic links may form a cycle.
const FOLDER_DEPTH_MAX: usize = 32;
/// Maximum depth of lists of Kubernetes objects.
const LIST_DEPTH_MAX: usize = 8;

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: Rc<str>,
    pub(super) text: String,
}

/// Reads files, and the files of directories that have one of the suffixes, in the order of their names.
///
/// # Errors
/// If one cannot be read, is not UTF-8, or is too large, or if there are too many.
pub(super) fn read(paths: &[PathBuf], suffixes: &[&str]) -> Result<Vec<File>> {
    let mut found = Vec::new();
    for path in paths {
        collect(path, suffixes, 0, &mut found)?;
    }
    found.iter().map(|path| read_file(path)).collect()
}

fn collect(path: &Path, suffixes: &[&str], depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path.metadata().with_context(|| format!("read {path:?}"))?.is_dir() {
        let has_suffix = suffixes.iter().any(|suffix| path.to_string_lossy().ends_with(suffix));
        if depth == 0 || has_suffix {
            ensure!(found.len() < FILES_MAX, "more than {FILES_MAX} files");
            found.push(path.to_owned());
        }
        return Ok(());
    }
    if depth > FOLDER_DEPTH_MAX {
        bail!("{path:?} is nested more than {FOLDER_DEPTH_MAX} directories deep");
    }
    let entries = path.read_dir().and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut entries: Vec<PathBuf> = entries.with_context(|| format!("read directory {path:?}"))?;
    entries.sort();
    entries.iter().try_for_each(|entry| collect(entry, suffixes, depth + 1, found))
}

/// Reads one file.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn read_file(path: &Path) -> Result<File> {
    Ok(File { name: path.to_string_lossy().into(), text: read_text(path, FILE_SIZE_MAX)? })
}

/// Parses JSON or YAML and returns all documents, and the items of lists of Kubernetes objects.
///
/// # Errors
/// The parser's error.
pub(super) fn parse(text: &str) -> Result<Vec<Value>, String> {
    // The YAML parser is slow with large JSON.
    if let Ok(value) = serde_json::from_str(text) {
        let mut objects = Vec::new();
        flatten(value, 0, &mut objects);
        return Ok(objects);
    }
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        flatten(Value::deserialize(document).map_err(|error| error.to_string())?, 0, &mut objects);
    }
    Ok(objects)
}

fn flatten(value: Value, depth: usize, objects: &mut Vec<Value>) {
    match value {
        Value::Array(items) if depth < LIST_DEPTH_MAX => {
            items.into_iter().for_each(|item| flatten(item, depth + 1, objects));
        }
        Value::Object(mut object) if depth < LIST_DEPTH_MAX && kind(&object).ends_with("List") => {
            let items = object.remove("items").unwrap_or_default();
            flatten(items, depth + 1, objects);
        }
        Value::Null => {}
        value => objects.push(value),
    }
}

fn kind(object: &serde_json::Map<String, Value>) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_and_list_items_are_returned_one_by_one() {
        assert_eq!(
            parse("a: 1\n---\n# nothing\n---\n[{b: 2}, {c: 3}]\n").unwrap(),
            [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]
        );
        let list = "{\"kind\": \"PrometheusRuleList\", \"items\": [{\"kind\": \"List\", \"items\": [1]}, 2]}";
        assert_eq!(parse(list).unwrap(), [json!(1), json!(2)]);
        assert!(parse("a: [").unwrap_err().contains("line 2"));
    }

    #[test]
    fn directories_are_read_recursively_in_order() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["b/x.yaml", "a.yaml", "c.txt"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let texts = |paths: &[PathBuf]| -> Vec<_> {
            read(paths, &[".yaml"]).unwrap().into_iter().map(|file| file.text).collect()
        };
        assert_eq!(texts(&[folder.path().to_owned()]), ["a.yaml", "b/x.yaml"]);
        assert_eq!(texts(&[folder.path().join("c.txt")]), ["c.txt"]);
        assert!(read(&[folder.path().join("none")], &[]).is_err());
    }
}
