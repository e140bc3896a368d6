//! The Debian package: built by cargo-deb from the binary under test, unpacked, and run. Also what
//! `dist` adds to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{repository_path, text};
use crate::harness::{Process, missing, new_data_dir};

fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{command:?}: {stdout}{stderr}");
    stdout
}

fn varve(program: &Path, args: &[&str]) -> String {
    run(Command::new(program).args(args))
}

#[test]
fn version_has_commit_and_date() {
    let printed = varve(Path::new(env!("CARGO_BIN_EXE_varve")), &["--version"]);
    let lines: Vec<_> = printed.lines().collect();
    let [first, date] = lines[..] else {
        panic!("{printed}")
    };
    let revision = first
        .strip_prefix(&format!(
            "varve, version {} (revision: ",
            env!("CARGO_PKG_VERSION")
        ))
        .unwrap();
    // A build for development does not know its commit.
    let expect = option_env!("VARVE_REVISION").unwrap_or("unknown");
    assert_eq!(revision, format!("{expect})"));
    assert!(date.starts_with("  build date:       "), "{date}");
    let is_known = option_env!("SOURCE_DATE_EPOCH").is_some();
    assert_eq!(date.ends_with('Z'), is_known, "{date}");
}

#[test]
fn dist_script_is_valid_shell_and_names_files_that_exist() {
    run(Command::new("sh")
        .arg("-n")
        .arg(repository_path("docs/deploy/dist")));
    let manifest = text("Cargo.toml");
    let assets = manifest
        .split("\nassets = [")
        .nth(1)
        .unwrap()
        .split("\n]")
        .next()
        .unwrap();
    for asset in assets
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[\""))
    {
        let path = asset.split('"').next().unwrap();
        let exists = path.split_once('*').map_or_else(
            || repository_path(path).exists(),
            |(dir, _)| repository_path(dir).is_dir(),
        );
        assert!(path.starts_with("target/deb/") || exists, "{path}");
    }
}

/// Puts the files that `dist` generates into a directory, as target/deb.
fn generate(deb: &Path) {
    let binary = env!("CARGO_BIN_EXE_varve");
    for dir in ["man", "completions"] {
        std::fs::create_dir_all(deb.join(dir)).unwrap();
    }
    std::fs::copy(binary, deb.join("varve")).unwrap();
    varve(
        Path::new(binary),
        &["man", "--dir", deb.join("man").to_str().unwrap()],
    );
    let pages: Vec<PathBuf> = std::fs::read_dir(deb.join("man"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    run(Command::new("gzip").arg("-n").args(&pages));
    for shell in ["bash", "zsh", "fish"] {
        std::fs::write(
            deb.join(format!("completions/varve.{shell}")),
            varve(Path::new(binary), &["completion", shell]),
        )
        .unwrap();
    }
}

/// Builds the package in a directory. cargo-deb reads the manifest, so it works on a copy of what
/// the manifest names.
fn build(dir: &Path) -> PathBuf {
    let copy = dir.join("varve");
    std::fs::create_dir(&copy).unwrap();
    let listed = run(Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(repository_path("")));
    let is_needed = |path: &&str| {
        path.ends_with("Cargo.toml")
            || path.ends_with(".rs")
            || path.starts_with("docs/deploy")
            || path.starts_with("docs/mixin")
            || !path.contains('/')
    };
    for path in listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .filter(is_needed)
    {
        let target = copy.join(path);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        if repository_path(path).is_file() {
            std::fs::copy(repository_path(path), target).unwrap();
        }
    }
    generate(&copy.join("target/deb"));
    let deb = dir.join("varve.deb");
    run(Command::new("cargo-deb")
        .args([
            "deb",
            "--fast",
            "--no-build",
            "--no-strip",
            "--offline",
            "--output",
        ])
        .arg(&deb)
        .current_dir(&copy));
    deb
}

/// Checks the files of the package, and its scripts, which it extracts to `control`.
fn check_content(deb: &Path, control: &Path) {
    let content = run(Command::new("dpkg-deb").arg("--contents").arg(deb));
    let files: Vec<_> = content
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    for file in [
        "./usr/bin/varve",
        "./usr/lib/systemd/system/varve.service",
        "./etc/default/varve",
        "./usr/share/man/man1/varve.1.gz",
        "./usr/share/man/man1/varve-query-instant.1.gz",
        "./usr/share/bash-completion/completions/varve",
        "./usr/share/doc/varve/NOTICE",
        "./usr/share/varve/mixin/alerts.yaml",
        "./usr/share/varve/grafana/provisioning/datasources/varve.yaml",
        "./usr/share/varve/grafana/provisioning/dashboards/varve.yaml",
    ] {
        assert!(files.contains(&file), "{file} is not in\n{content}");
    }
    // Each dashboard of the mixin, in the directories that the provisioning files name.
    let providers = text("docs/deploy/grafana/provisioning/dashboards/varve.yaml");
    let dirs = providers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path: "));
    for dir in dirs {
        let source = repository_path(&dir.replace("/usr/share/varve/", "docs/"));
        for entry in std::fs::read_dir(source).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let file = format!(".{dir}/{name}");
            assert!(files.contains(&&*file), "{file} is not in\n{content}");
        }
    }
    run(Command::new("dpkg-deb")
        .arg("--control")
        .arg(deb)
        .arg(control));
    let script = |name: &str| std::fs::read_to_string(control.join(name)).unwrap();
    assert_eq!(script("conffiles").trim(), "/etc/default/varve");
    assert!(
        script("postinst").contains("deb-systemd-invoke")
            && script("postrm").contains("/var/lib/varve")
    );
    for name in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh").arg("-n").arg(control.join(name)));
        assert!(!script(name).contains("#DEBHELPER#"), "{name}");
    }
}

#[test]
fn package_is_built_unpacked_and_run() {
    if missing(&["cargo-deb", "dpkg-deb", "gzip"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let deb = build(dir.path());
    check_content(&deb, &dir.path().join("control"));
    let root = dir.path().join("root");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&deb)
        .arg(&root));
    let installed = root.join("usr/bin/varve");
    assert!(varve(&installed, &["--version"]).starts_with("varve, version "));
    let (_dir, data_dir) = new_data_dir();
    let path = format!("--storage.tsdb.path={}", data_dir.display());
    let mut server = Process::start(
        "varve",
        Command::new(&installed).args(["serve", "--web.listen-address=127.0.0.1:0", &path]),
    );
    server.listening_address();
    assert!(server.terminate().success());
}
