//! Azure Blob Storage: npm's Azurite (`tests/objstore/package.json`).

use std::process::Command;

use tempfile::TempDir;

use super::{
    Bucket, HOUR, N_BLOCKS, T0, check_answers, fail, fill_with_noise, succeed, text, thanos,
    uploaded,
};
use crate::harness::{Http, Process, Server, free_address, missing, wait_until};

const ACCOUNT: &str = "account1";
/// The words `a key of a storage account` in Base64.
const KEY: &str = "YSBrZXkgb2YgYSBzdG9yYWdlIGFjY291bnQ=";
/// Requests of random values: together more than a part of an object, 16 MiB.
const N_NOISE: usize = 40;

/// A server of Azure Blob Storage with one account.
struct Azurite {
    _process: Process,
    http: Http,
    dir: TempDir,
}

impl Azurite {
    /// Starts a server, if the machine has it.
    fn start() -> Option<Self> {
        if missing(&["azurite-blob"]) {
            return None;
        }
        let dir = TempDir::new().unwrap();
        let address = free_address();
        let mut command = Command::new("azurite-blob");
        command
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}"))
            .args(["--disableTelemetry", "--silent", "--blobHost", "127.0.0.1"])
            .args(["--blobPort", &address.port().to_string()])
            .args(["--location", text(dir.path())])
            .args(["--debug", text(&dir.path().join("debug.log"))]);
        let process = Process::start("azurite", &mut command);
        let http = Http::new(address);
        wait_until("azurite", || http.try_get("/").is_ok());
        Some(Self {
            _process: process,
            http,
            dir,
        })
    }

    /// Returns the configuration of a container. Thanos reads the same file.
    fn bucket(&self, prefix: &str, key: &str) -> Bucket {
        let config = format!(
            "type: AZURE\nprefix: {prefix}\nconfig: {{container: metrics-0, storage_account: {ACCOUNT}, \
             max_retries: 1, storage_connection_string: 'AccountName={ACCOUNT};AccountKey={key};\
             BlobEndpoint={}'}}\n",
            self.http.url(&format!("/{ACCOUNT}"))
        );
        Bucket::with_config(TempDir::new().unwrap(), config)
    }

    /// Returns `true` if a request had this text in its query.
    fn has_received(&self, query: &str) -> bool {
        let log = std::fs::read_to_string(self.dir.path().join("debug.log")).unwrap();
        log.contains(query)
    }
}

#[test]
fn a_container_of_azure_takes_uploads_and_backups_and_gives_them_back() {
    let Some(azurite) = Azurite::start() else {
        return;
    };
    // Nobody has created the container: the first upload does.
    let bucket = azurite.bucket("tenants/x", KEY);
    let (server, _config) = uploaded(&bucket, "a", &[]);
    assert_eq!(
        server.metric("varve_uploads_blocks_total") as usize,
        N_BLOCKS
    );
    assert_eq!(server.metric("varve_uploads_failures_total"), 0.0);
    if !missing(&["thanos"]) {
        assert_eq!(thanos::n_inspected(&bucket), N_BLOCKS);
        thanos::verify(&bucket);
    }
    let imported = Server::start_on(&[], |data_dir| {
        let printed = succeed(&[
            "import",
            &bucket.config_file(),
            text(data_dir),
            "--block-label=replica=a",
        ]);
        assert!(
            printed.contains(&format!("imported {N_BLOCKS} blocks")),
            "{printed}"
        );
    });
    check_answers(server.http(), imported.http(), &[]);

    assert!(!azurite.has_received("comp=blocklist"));
    let backups = azurite.bucket("backups", KEY);
    fill_with_noise(&server, N_NOISE);
    let url = format!("--url={}", server.http().url(""));
    succeed(&["backup", &backups.config_file(), &url, "--verify"]);
    assert!(
        azurite.has_received("comp=blocklist"),
        "a file was sent in blocks"
    );
    let restored = Server::start_on(&[], |data_dir| {
        succeed(&["restore", &backups.config_file(), text(data_dir)]);
    });
    check_answers(server.http(), restored.http(), &[]);
    let at = ((T0 + 14 * HOUR) / 1000 + 1).to_string();
    let newest = restored
        .http()
        .query("/api/v1/query", &[("query", "count(noise)"), ("time", &at)]);
    let n_series = (100 * N_NOISE).to_string();
    assert_eq!(newest.data()["result"][0]["value"][1], *n_series);
}

#[test]
fn a_wrong_key_is_reported_without_secrets() {
    let Some(azurite) = Azurite::start() else {
        return;
    };
    let dir = TempDir::new().unwrap();
    let wrong = "YSB3cm9uZyBrZXk=";
    for (key, expect) in [
        (wrong, "returned 403: AuthorizationFailure: "),
        (KEY, "nothing was imported from"),
    ] {
        let bucket = azurite.bucket("tenants/x", key);
        let error = fail(&["import", &bucket.config_file(), text(dir.path())]);
        assert!(error.contains(expect), "{error}");
        assert!(!error.contains(key), "{error}");
    }
}
