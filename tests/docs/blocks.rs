//! The code blocks of a page, and the programs that they expect on the PATH.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_oracle::{missing, unsupported};

/// A code block of a page.
pub(super) struct Block {
    /// The language: `sh`, `console`, `yaml`.
    pub(super) language: String,
    /// The text, without the indentation of its fence.
    pub(super) text: String,
    /// The text between this block and the one before.
    pub(super) before: String,
    /// Why it does not run: `<!-- not run: REASON -->` is before it.
    pub(super) not_run: Option<String>,
}

/// Returns the code blocks of a page.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut before = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            before.push_str(line);
            before.push('\n');
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let mut text = String::new();
        for line in lines
            .by_ref()
            .take_while(|line| !line.trim_start().starts_with("```"))
        {
            text.push_str(line.get(indent..).unwrap_or_default());
            text.push('\n');
        }
        let before = std::mem::take(&mut before).trim_end().to_owned();
        let not_run = before.lines().last().and_then(|line| {
            let reason = line.trim().strip_prefix("<!-- not run: ")?;
            Some(reason.trim_end_matches(" -->").to_owned())
        });
        blocks.push(Block {
            language: language.to_owned(),
            text,
            before,
            not_run,
        });
    }
    blocks
}

/// Returns `true` if this process may make namespaces for processes and the network. Otherwise says
/// that the test is skipped.
pub(super) fn can_isolate() -> bool {
    if missing(&["unshare", "ip", "bash"]) {
        return false;
    }
    let made = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--mount-proc", "true"])
        .status();
    let is_allowed = made.is_ok_and(|status| status.success());
    if !is_allowed {
        unsupported("this user may not make namespaces");
    }
    is_allowed
}

pub(super) fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Creates the programs that the README expects on the PATH, and returns the PATH.
pub(super) fn programs(dir: &Path) -> String {
    let program = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).expect("write a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
    };
    let varve = env!("CARGO_BIN_EXE_varve");
    program(
        "cargo",
        &format!("#!/bin/sh\nshift 3\nexec {varve} \"$@\"\n"),
    );
    symlink(varve, dir.join("varve")).expect("link the program");
    let path = std::env::var("PATH").unwrap_or_default();
    let has_man = std::env::split_paths(&path).any(|dir| dir.join("man").exists());
    if !has_man {
        program("man", "#!/bin/sh\nexec cat\n");
    }
    format!("{}:{path}", dir.display())
}
