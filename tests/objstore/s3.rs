//! S3: PyPI's moto server (`tests/objstore/requirements.txt`).

use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use super::{
    Bucket, HOUR, N_BLOCKS, T0, UPLOAD_EVERY, check_answers, fail, fill, fill_with_noise, replica,
    succeed, text, thanos, uploaded,
};
use crate::harness::{Http, Process, Server, free_address, missing, python_with, wait_until};

/// An S3 server with one empty bucket.
struct Moto {
    _process: Process,
    http: Http,
}

impl Moto {
    /// Starts a server, if Python has it. Only the first `n_open` requests need no valid
    /// credentials.
    fn start(n_open: &str) -> Option<Self> {
        let python = python_with("moto.server, flask_cors")?;
        let address = free_address();
        let mut command = Command::new(python);
        command.args([
            "-m",
            "moto.server",
            "-H",
            "127.0.0.1",
            "-p",
            &address.port().to_string(),
        ]);
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", n_open);
        let process = Process::start("moto", &mut command);
        let http = Http::new(address);
        wait_until("moto", || http.try_get("/moto-api/").is_ok());
        http.call("PUT", "/metrics-0", &[], b"").expect_status(200);
        Some(Self {
            _process: process,
            http,
        })
    }

    /// Returns the configuration of the bucket behind an address.
    fn bucket(address: SocketAddr, fields: &str) -> Bucket {
        let config = format!(
            "type: S3\nprefix: tenants/x\nconfig: {{bucket: metrics-0, endpoint: '{address}', insecure: true, \
             access_key: key, secret_key: s3cr3t, {fields}}}\n"
        );
        Bucket::with_config(TempDir::new().unwrap(), config)
    }
}

/// Starts a proxy that responds with 500 on every third connection, and cuts every other one after
/// 7 MiB.
fn flaky(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                if n % 3 == 0 {
                    let _ = client.read(&mut [0; 4096]);
                    let _ = client.write_all(
                        b"HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    );
                    return;
                }
                let mut server = TcpStream::connect(server).unwrap();
                let (requests, mut responses) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                let forward =
                    std::thread::spawn(move || copy(&mut requests.take(7 << 20), &mut server));
                let _ = copy(&mut responses, &mut client);
                let _ = (
                    client.shutdown(Shutdown::Both),
                    responses.shutdown(Shutdown::Both),
                );
                let _ = forward.join();
            });
        }
    });
    address
}

#[test]
fn a_bucket_of_s3_takes_uploads_and_backups_and_gives_them_back() {
    let Some(moto) = Moto::start("inf") else {
        return;
    };
    let bucket = Moto::bucket(moto.http.address(), "");
    let (server, _config) = uploaded(&bucket, "a", &[]);
    assert_eq!(
        server.metric("varve_uploads_blocks_total") as usize,
        N_BLOCKS
    );
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
    // A prefix of its own, with a file that is sent in parts.
    let config = bucket
        .config
        .replace("tenants/x", "backups")
        .replace("access_key", "part_size: 5242880, access_key");
    let backups = Bucket::with_config(TempDir::new().unwrap(), config);
    fill_with_noise(&server, 10);
    let url = format!("--url={}", server.http().url(""));
    succeed(&["backup", &backups.config_file(), &url, "--verify"]);
    let restored = Server::start_on(&[], |data_dir| {
        succeed(&["restore", &backups.config_file(), text(data_dir)]);
    });
    check_answers(server.http(), restored.http(), &[]);
    let at = ((T0 + 14 * HOUR) / 1000 + 1).to_string();
    let newest = restored
        .http()
        .query("/api/v1/query", &[("query", "count(noise)"), ("time", &at)]);
    assert_eq!(newest.data()["result"][0]["value"][1], "1000");
    let listed = moto.http.get("/metrics-0?prefix=backups/files").text();
    assert!(
        listed.contains("-2\"</ETag>"),
        "a file was sent in two parts: {listed}"
    );
}

#[test]
fn uploads_and_backups_survive_failed_and_cut_requests() {
    let Some(moto) = Moto::start("inf") else {
        return;
    };
    let bucket = Moto::bucket(flaky(moto.http.address()), "part_size: 5242880");
    let (server, _config) = uploaded(&bucket, "a", &[]);
    assert!(server.metric("varve_objstore_retries_total") > 0.0);
    assert_eq!(
        server.metric("varve_uploads_failures_total"),
        0.0,
        "{}",
        server.log()
    );
    fill_with_noise(&server, 10);
    let url = format!("--url={}", server.http().url(""));
    let backups = bucket.config.replace("tenants/x", "backups");
    let backups = Bucket::with_config(TempDir::new().unwrap(), backups);
    succeed(&["backup", &backups.config_file(), &url, "--verify"]);
    let direct = Moto::bucket(moto.http.address(), "");
    let imported = Server::start_on(&[], |data_dir| {
        drop(succeed(&["import", &direct.config_file(), text(data_dir)]))
    });
    check_answers(server.http(), imported.http(), &[]);
}

#[test]
fn an_unreachable_bucket_and_wrong_credentials_are_reported_without_secrets() {
    let Some(moto) = Moto::start("1") else { return };
    let refused =
        "InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records.";
    for (address, fields, expect) in [
        (moto.http.address(), "", refused),
        (free_address(), "max_retries: 1", "Connection refused"),
    ] {
        let (bucket, config) = (Moto::bucket(address, fields), replica("a"));
        let server = Server::start(&[
            "--web.enable-admin-api",
            UPLOAD_EVERY,
            &bucket.flag(),
            &config.flag(),
        ]);
        fill(&server);
        wait_until("a failed round", || {
            server.metric("varve_uploads_failures_total") >= 1.0
        });
        wait_until("pending windows", || {
            server.metric("varve_uploads_pending_blocks") == N_BLOCKS as f64
        });
        let url = format!("--url={}", server.http().url(""));
        let error = fail(&["backup", &bucket.config_file(), &url]);
        for log in [server.log(), error] {
            assert!(log.contains(expect) && !log.contains("s3cr3t"), "{log}");
        }
    }
}
