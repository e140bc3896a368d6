//! Input files and directories.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use varve_system::machine::files::read_text;

/// Maximum number of files.
const FILES_MAX: usize = 20_000;
/// Maximum size of a file.
const FILE_SIZE_MAX: u64 = 128 << 20;
/// Maximum depth of directories, as symbolic links may form a cycle.
const FOLDER_DEPTH_MAX: usize = 32;

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: Rc<str>,
    pub(super) text: String,
}

/// Reads files, and the files of directories that have one of the suffixes, in the order of their
/// names.
///
/// # Errors
/// If one cannot be read, is not UTF-8, or is too large, if there are too many, or if a directory has
/// none.
pub(super) fn read(paths: &[PathBuf], suffixes: &[&str]) -> Result<Vec<File>> {
    let mut found = Vec::new();
    for path in paths {
        let n_before = found.len();
        collect(path, suffixes, 0, &mut found)?;
        ensure!(
            found.len() > n_before,
            "{path:?} has no file that ends in {}",
            suffixes.join(" or ")
        );
    }
    found.iter().map(|path| read_file(path)).collect()
}

fn collect(path: &Path, suffixes: &[&str], depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path
        .metadata()
        .with_context(|| format!("read {path:?}"))?
        .is_dir()
    {
        let has_suffix = suffixes
            .iter()
            .any(|suffix| path.to_string_lossy().ends_with(suffix));
        if depth == 0 || has_suffix {
            ensure!(found.len() < FILES_MAX, "more than {FILES_MAX} files");
            found.push(path.to_owned());
        }
        return Ok(());
    }
    if depth > FOLDER_DEPTH_MAX {
        bail!("{path:?} is nested more than {FOLDER_DEPTH_MAX} directories deep");
    }
    let entries = path
        .read_dir()
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut entries: Vec<PathBuf> = entries.with_context(|| format!("read directory {path:?}"))?;
    entries.sort();
    for entry in &entries {
        collect(entry, suffixes, depth + 1, found)?;
    }
    Ok(())
}

/// Reads one file.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn read_file(path: &Path) -> Result<File> {
    Ok(File {
        name: path.to_string_lossy().into(),
        text: read_text(path, FILE_SIZE_MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_read_recursively_in_order() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["b/x.yaml", "a.yaml", "c.txt"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let texts = |paths: &[PathBuf]| -> Vec<_> {
            read(paths, &[".yaml"])
                .unwrap()
                .into_iter()
                .map(|file| file.text)
                .collect()
        };
        assert_eq!(texts(&[folder.path().to_owned()]), ["a.yaml", "b/x.yaml"]);
        assert_eq!(texts(&[folder.path().join("c.txt")]), ["c.txt"]);
        assert!(read(&[folder.path().join("none")], &[]).is_err());
        let error = read(&[folder.path().to_owned()], &[".json", ".yml"]).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("has no file that ends in .json or .yml")
        );
    }
}
