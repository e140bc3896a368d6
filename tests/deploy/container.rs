//! The container: the binary works as an unprivileged user on a read-only root with nothing but
//! itself and a writable data directory. No container runtime is needed: `unshare` and `chroot`
//! make the same surroundings.

use std::path::Path;
use std::process::Command;

use super::text;
use crate::harness::{Http, Process, WriteRequest, missing, now_ms, series, wait_until};

const CONTAINERFILE: &str = "docs/deploy/container/Containerfile";

/// Mounts an empty file system, copies the binary and what it is linked to into it, makes it
/// read-only except for the data directory, and becomes another user.
const ENTER: &str = r#"
set -e
root=$1 binary=$2 data=$3 user=$4
shift 4
mount -t tmpfs none "$root"
mkdir -p "$root/bin" "$root$data" "$root/proc"
cp "$binary" "$root/bin/varve"
# The image has a static binary, a build for development may not.
ldd "$binary" 2>/dev/null | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
mount -t tmpfs none "$root$data"
chown "$user:$user" "$root$data"
mount -t proc proc "$root/proc"
mount -o remount,ro "$root"
exec chroot --userspec="$user:$user" --groups= "$root" "$@"
"#;

/// Returns the value of an instruction.
fn instruction(name: &str) -> String {
    let file = text(CONTAINERFILE);
    let line = file
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[test]
fn image_is_minimal_and_labeled() {
    let file = text(CONTAINERFILE);
    assert_eq!(instruction("FROM"), "scratch");
    let copied: Vec<_> = file
        .lines()
        .filter(|line| line.starts_with("COPY ") || line.starts_with("ADD "))
        .collect();
    let mixin = "COPY mixin /usr/share/varve/mixin";
    assert_eq!(copied, ["COPY --chmod=755 varve /bin/varve", mixin]);
    // The script that fills the directory of the build.
    let dist = text("docs/deploy/dist");
    assert!(dist.contains(r#"cp -R "$work/$name/mixin" "$out/mixin""#));
    for label in ["title", "licenses", "version", "revision", "created"] {
        assert!(
            file.contains(&format!("org.opencontainers.image.{label}=")),
            "{label}"
        );
    }
    assert_eq!(
        instruction("ARG"),
        format!("VERSION={}", env!("CARGO_PKG_VERSION"))
    );
    let (user, group) = instruction("USER")
        .split_once(':')
        .map(|(u, g)| (u.to_owned(), g.to_owned()))
        .unwrap();
    assert!(
        user == group && user.parse::<u32>().unwrap() > 0,
        "{user}:{group}"
    );
}

#[test]
fn the_command_of_the_image_runs_unprivileged_on_a_read_only_root() {
    if missing(&["unshare", "setpriv", "chroot", "ldd"]) {
        return;
    }
    let is_permitted = Command::new("unshare")
        .args(["-m", "--", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !is_permitted.is_ok_and(|output| output.status.success()) {
        varve_oracle::unsupported("cannot mount in a namespace of its own");
        return;
    }
    let entry: Vec<String> = serde_json::from_str(&instruction("ENTRYPOINT")).unwrap();
    let mut args: Vec<String> = serde_json::from_str(&instruction("CMD")).unwrap();
    let listen = args
        .iter_mut()
        .find(|arg| arg.starts_with("--web.listen-address="))
        .unwrap();
    *listen = "--web.listen-address=127.0.0.1:0".to_owned();
    let (data, user) = (instruction("VOLUME"), instruction("USER"));
    let user = user.split(':').next().unwrap();
    let root = tempfile::tempdir().unwrap();

    let mut command = Command::new("unshare");
    command
        .args(["-m", "--", "sh", "-c", ENTER, "sh"])
        .arg(root.path());
    command
        .args([env!("CARGO_BIN_EXE_varve"), &data, user])
        .args(&entry)
        .args(&args);
    let mut server = Process::start("varve", &mut command);
    let http = Http::new(server.listening_address());
    wait_until("the server", || http.get("/-/ready").status == 200);
    http.write(&WriteRequest::new([series(
        &[("__name__", "m")],
        &[(now_ms(), 1.0)],
    )]))
    .expect_status(204);
    assert_eq!(
        http.query("/api/v1/query", &[("query", "m")]).data()["result"][0]["value"][1],
        "1"
    );

    // What the kernel says about the process.
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(line("Uid:").split_whitespace().next(), Some(user));
    assert_eq!(line("CapEff:"), "0000000000000000");
    let seen = Path::new("/proc")
        .join(server.id().to_string())
        .join("root");
    let write_into = |dir: &str| {
        let file = format!("{}/{dir}/new", seen.display());
        let args = [
            &format!("--reuid={user}"),
            &format!("--regid={user}"),
            "--clear-groups",
            "touch",
            &file,
        ];
        Command::new("setpriv")
            .args(args)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(
        write_into(&data) && !write_into("") && !write_into("bin"),
        "only the data directory can be written"
    );
    assert!(server.terminate().success());
}
