//! Uploads to a directory: interruptions, another bucket, local retention, refusals.

use std::time::Duration;

use super::{Bucket, HOUR, N_BLOCKS, T0, UPLOAD_EVERY, fill, replica, uploaded, wait_for_uploads};
use crate::harness::{ConfigFile, Server, try_serve, wait_until};

#[test]
fn a_server_that_is_killed_leaves_no_visible_half_block_and_continues() {
    let (bucket, config) = (Bucket::directory(), replica("a"));
    let (flag, config_flag) = (bucket.flag(), config.flag());
    let mut server = Server::start(&["--web.enable-admin-api", &config_flag]);
    fill(&server);
    for life_ms in [40, 80, 120, 160, 200, 240, 280, 320] {
        server.kill();
        let life = Duration::from_millis(life_ms);
        server.restart_and_kill(
            &[
                &flag,
                &config_flag,
                UPLOAD_EVERY,
                "--objstore.max-bandwidth=256KiB",
            ],
            life,
        );
        bucket.check_complete();
    }
    let names = bucket.blocks();
    server.restart(&[&flag, &config_flag, UPLOAD_EVERY]);
    wait_for_uploads(&server);
    bucket.check_complete();
    assert_eq!(bucket.blocks().len(), N_BLOCKS);
    assert!(
        names.keys().all(|name| bucket.blocks().contains_key(name)),
        "a visible block stays"
    );
}

#[test]
fn a_full_bucket_has_no_half_of_a_block_and_uploads_continue_once_there_is_room() {
    let (mut bucket, config) = (Bucket::directory(), replica("a"));
    let disk = bucket.path.clone();
    let flags = [
        "--web.enable-admin-api",
        UPLOAD_EVERY,
        &bucket.flag(),
        &config.flag(),
    ];
    let Some(server) = Server::start_beside_small_disk("48k", &disk, &flags) else {
        return;
    };
    bucket.path = server.root(&disk);
    fill(&server);
    wait_until("a failed round", || {
        server.metric("varve_uploads_failures_total") >= 2.0
    });
    let n_blocks = bucket.blocks().len();
    assert!(
        n_blocks < N_BLOCKS && server.log().contains("No space left on device"),
        "{n_blocks} {}",
        server.log()
    );
    assert_eq!(
        server.metric("varve_uploads_pending_blocks") as usize,
        N_BLOCKS - n_blocks
    );
    bucket.check_complete();
    server.resize_disk(&disk, "64m");
    wait_for_uploads(&server);
    bucket.check_complete();
    assert_eq!(bucket.blocks().len(), N_BLOCKS);
}

#[test]
fn another_bucket_gets_everything_and_a_damaged_block_is_repaired() {
    let bucket = Bucket::directory();
    let (mut server, config) = uploaded(&bucket, "a", &[]);
    let names: Vec<_> = bucket.blocks().into_keys().collect();
    assert_eq!(names.len(), N_BLOCKS);
    // The same directory with another bucket in it. Uploads may be in progress: `rename` moves
    // their files with it.
    std::fs::rename(&bucket.path, bucket.path.with_extension("old")).unwrap();
    wait_until("uploads to the new bucket", || {
        bucket.blocks().into_keys().collect::<Vec<_>>() == names
    });
    wait_for_uploads(&server);
    server.terminate();
    // The names of replicas with equal samples differ.
    let other = replica("b");
    server.restart(&[&bucket.flag(), &other.flag(), UPLOAD_EVERY]);
    wait_until("blocks with other labels", || {
        bucket.blocks().len() == 2 * N_BLOCKS
    });
    server.terminate();
    // A block that has lost a file, and a server that has lost its state.
    std::fs::remove_file(bucket.path.join(&names[1]).join("index")).unwrap();
    std::fs::write(bucket.path.join(&names[2]).join("chunks/000001"), "short").unwrap();
    std::fs::remove_file(server.data_dir().join("uploads")).unwrap();
    server.restart(&[&bucket.flag(), &config.flag(), UPLOAD_EVERY]);
    wait_for_uploads(&server);
    bucket.check_complete();
    assert_eq!(server.metric("varve_uploads_blocks_total"), 2.0);
}

#[test]
fn local_blocks_are_removed_only_if_the_bucket_has_them() {
    let bucket = Bucket::directory();
    let (mut server, config) = uploaded(&bucket, "a", &[]);
    let names: Vec<_> = bucket.blocks().into_keys().collect();
    server.terminate();
    let short = "--storage.tsdb.retention.local-after-upload=5h";
    let count = |server: &Server| {
        let at = ((T0 + HOUR) / 1000).to_string();
        let found = server.http().query(
            "/api/v1/query",
            &[("query", "count(requests_total)"), ("time", &at)],
        );
        found.data()["result"].as_array().unwrap().len()
    };
    // No bucket: a file is in its place.
    let aside = bucket.path.with_extension("aside");
    std::fs::rename(&bucket.path, &aside).unwrap();
    std::fs::write(&bucket.path, "").unwrap();
    server.restart(&[
        &bucket.flag(),
        &config.flag(),
        UPLOAD_EVERY,
        short,
        "--storage.tsdb.retention.time=1h",
    ]);
    wait_until("a failed round", || {
        server.metric("varve_uploads_failures_total") >= 2.0
    });
    assert_eq!(
        (
            server.metric("varve_uploads_local_blocks_removed_total"),
            count(&server)
        ),
        (0.0, 1)
    );
    // The bucket is back and has lost a file of a block whose upload the state records.
    std::fs::remove_file(&bucket.path).unwrap();
    std::fs::rename(&aside, &bucket.path).unwrap();
    std::fs::remove_file(bucket.path.join(&names[0]).join("index")).unwrap();
    wait_until("the removal of local blocks", || {
        server.metric("varve_uploads_local_blocks_removed_total") >= 4.0
    });
    bucket.check_complete();
    assert_eq!((bucket.blocks().len(), count(&server)), (N_BLOCKS, 0));
    assert_eq!(server.metric("varve_uploads_blocks_total"), 1.0);
    // Newer blocks stay.
    let at = ((T0 + 9 * HOUR) / 1000).to_string();
    let newer = server.http().query(
        "/api/v1/query",
        &[("query", "count(requests_total)"), ("time", &at)],
    );
    assert_eq!(newer.data()["result"][0]["value"][1], "20");
}

#[test]
fn deleted_samples_are_not_uploaded() {
    let (bucket, config) = (Bucket::directory(), replica("a"));
    let mut server = Server::start(&["--web.enable-admin-api", &config.flag()]);
    fill(&server);
    let selector = "requests_total{job=\"a\"}";
    server
        .http()
        .form("/api/v1/admin/tsdb/delete_series", &[("match[]", selector)])
        .expect_status(204);
    server.terminate();
    server.restart(&[&bucket.flag(), &config.flag(), UPLOAD_EVERY]);
    wait_for_uploads(&server);
    let n_series: Vec<_> = bucket
        .blocks()
        .into_values()
        .map(|meta| meta["stats"]["numSeries"].clone())
        .collect();
    assert_eq!(n_series, vec![11; N_BLOCKS]);
}

#[test]
fn a_server_does_not_start_without_external_labels_or_with_an_unknown_bucket() {
    let bucket = Bucket::directory();
    let data = tempfile::tempdir().unwrap();
    let check = |flags: &[&str], expect: &str| {
        let (status, output) = try_serve(data.path(), flags);
        assert!(!status.success() && output.contains(expect), "{output}");
    };
    let labels = replica("a");
    check(
        &[&bucket.flag()],
        "uploads (--objstore.config-file) need global.external_labels",
    );
    for (text, expect) in [
        ("type: GCS\nconfig: {use_grpc: false}", "bucket is missing"),
        (
            "type: OCI",
            "type OCI is not supported; use S3, GCS, AZURE or FILESYSTEM",
        ),
        (
            "type: AZURE\nconfig: {container: c, storage_account: a, storage_account_key: '!'}",
            "the key of storage account \"a\" is not Base64",
        ),
        (
            "type: S3\nconfig: {bucket: b, endpoint: e, access_key: a}",
            "access_key and secret_key must be set together",
        ),
    ] {
        let file = ConfigFile::new(text);
        let flag = file
            .flag()
            .replace("--config.file", "--objstore.config-file");
        check(&[&flag, &labels.flag()], expect);
    }
    check(
        &["--storage.tsdb.retention.local-after-upload=1h"],
        "the following required arguments were not provided",
    );
}
