//! The shell blocks of the guides run as they are printed, in the order of their page.
//!
//! All blocks of a page run in one shell, in an empty directory and in namespaces of their own for
//! processes and the network. A block that begins with a comment with a file name is this file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use varve_oracle::{find_all, missing};

use super::blocks::{Block, blocks, can_isolate, programs, repository_path};

/// The programs that the blocks of a page need, beside Varve. Other pages need none.
const PROGRAMS: [(&str, &[&str]); 6] = [
    (
        "high_availability.md",
        &["prometheus", "promtool", "thanos", "curl"],
    ),
    ("object_storage.md", &["thanos", "curl"]),
    ("opentelemetry.md", &["otelcol"]),
    ("secure.md", &["openssl", "curl"]),
    ("senders.md", &["prometheus", "vmagent", "otelcol", "curl"]),
    ("thanos.md", &["thanos", "prometheus", "curl"]),
];
/// Seconds after which a page ends with an error.
const TIMEOUT: &str = "300";

/// Returns the name of the file that a block is.
fn file_name(block: &Block) -> Option<&str> {
    let first = block.text.lines().next()?;
    let name = first
        .strip_prefix("# ")
        .or_else(|| first.strip_prefix("// "))?;
    (block.language != "sh" && name.contains('.') && !name.contains(' ')).then_some(name)
}

/// Returns a script of the blocks of a page that run, and their number.
fn script(dir: &Path, all: &[Block]) -> (String, usize) {
    let mut script = String::from("export LC_ALL=C.UTF-8\n");
    let mut n_run = 0;
    for (idx, block) in all.iter().enumerate() {
        if let Some(name) = file_name(block) {
            let source = format!("{idx}.{name}");
            fs::write(dir.join(&source), &block.text).expect("write a file");
            let _ = writeln!(script, "cp {source} {name}");
        } else if block.language == "sh" && block.not_run.is_none() {
            n_run += 1;
            let _ = writeln!(script, "echo '### block {idx}' >&2\n{}", block.text);
        }
    }
    (script, n_run)
}

#[test]
fn the_shell_blocks_of_the_guides_run() {
    if !can_isolate() {
        return;
    }
    let bin = TempDir::new().expect("make a directory");
    let path = programs(bin.path());
    let (mut n_run, mut n_not_run) = (0, 0);
    let mut pages: Vec<_> = fs::read_dir(repository_path("docs/guides"))
        .expect("list the guides")
        .map(|entry| entry.expect("list the guides").path())
        .collect();
    pages.sort();
    for page in pages {
        let name = page
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let all = blocks(&fs::read_to_string(&page).expect("read a guide"));
        let marked = all
            .iter()
            .filter(|block| block.language == "sh" && block.not_run.is_some());
        n_not_run += marked.count();
        let dir = TempDir::new().expect("make a directory");
        let (script, n_blocks) = script(dir.path(), &all);
        let needed = PROGRAMS.iter().find(|(page, _)| *page == name);
        if n_blocks == 0 || needed.is_some_and(|(_, programs)| missing(programs)) {
            continue;
        }
        n_run += n_blocks;
        let isolate = "ip link set lo up; exec timeout \"$1\" bash -euo pipefail -c \"$0\"";
        let output = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["sh", "-c", isolate, &script, TIMEOUT])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("HOME", dir.path())
            .output()
            .expect("run a shell");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            output.status.success(),
            "{name}: {}\n{printed}",
            output.status
        );
    }
    println!("{n_run} shell blocks of the guides run, {n_not_run} are marked as not run");
    if find_all("thanos").next().is_some() {
        assert!(n_run >= 10, "only {n_run} blocks run");
    }
    assert!(n_not_run <= 10, "{n_not_run} blocks are marked as not run");
}
