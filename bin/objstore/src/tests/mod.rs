//! The same operations on a directory and on servers that check credentials and fail at will.

mod azure;
mod azure_server;
mod http_server;
mod s3_server;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use varve_client::Access;

use super::*;
use crate::config::GcsConfig;
use crate::credentials::test_issuer::Issuer;
use crate::credentials::{TokenSource, google};
use s3_server::{KEY, REGION, SECRET, Server, Stored};

fn client(config: &BucketConfig) -> ObjectStore {
    ObjectStore::new(config, Pace::unlimited(), ObjstoreMetrics::unregistered()).unwrap()
}

impl Server {
    fn s3(&self, secret: &str) -> ObjectStore {
        let config = format!(
            "type: S3\nprefix: in/side\nconfig: {{bucket: my-bucket, endpoint: '{}', region: {REGION}, insecure: true, \
             access_key: {KEY}, secret_key: {secret}, part_size: 5242880, max_retries: 2}}",
            self.1
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bucket.yml");
        std::fs::write(&path, config).unwrap();
        client(&BucketConfig::load(&path).unwrap())
    }

    /// Returns a client of Google Cloud Storage.
    fn gcs(&self, issuer: &Issuer) -> ObjectStore {
        let config = GcsConfig {
            bucket: "my-bucket".to_owned(),
            host: self.1.clone(),
            is_insecure: true,
            credentials: Some(TokenSource::Google(google::Source::Metadata {
                url: issuer.url.clone(),
                looked_for: "nowhere".to_owned(),
            })),
            access: Access::default(),
            part_size: 5 * MIB,
            retries_max: 2,
        };
        client(&BucketConfig {
            backend: BackendConfig::Gcs(Box::new(config)),
            prefix: "in/side/".to_owned(),
        })
    }
}

fn put(store: &mut ObjectStore, key: &str, bytes: &[u8]) -> Result<()> {
    store.put(key, bytes.len() as u64, &mut &*bytes)
}

fn keys(mut objects: Vec<Object>) -> Vec<(String, u64)> {
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    objects
        .into_iter()
        .map(|object| (object.key, object.size))
        .collect()
}

/// Runs all operations on an empty bucket.
fn check(store: &mut ObjectStore) {
    let large: Vec<u8> = (0..12_u64 << 20).map(|i| ((i * i) >> 7) as u8).collect();
    assert_eq!(store.list("").unwrap(), []);
    assert_eq!(store.read("none", 9).unwrap(), None);
    for (key, bytes) in [
        ("a/1", &b"one"[..]),
        ("a/large", &large),
        ("a b/3", b""),
        ("c", b"see"),
    ] {
        put(store, key, bytes).unwrap();
        assert_eq!(
            store.read(key, large.len() as u64).unwrap().unwrap(),
            bytes,
            "{key}"
        );
        assert_eq!(
            store.checksum(key, bytes.len() as u64).unwrap(),
            checksum::checksum(bytes),
            "{key}"
        );
    }
    put(store, "c", b"sea").unwrap();
    assert_eq!(store.read("c", 3).unwrap().unwrap(), b"sea");
    assert!(
        store
            .read("c", 2)
            .unwrap_err()
            .to_string()
            .contains("has more than 2 bytes")
    );
    for (key, expect) in [("c", "has fewer than 4 bytes"), ("none", "does not exist")] {
        let error = store.get(key, 4, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    let all = [("a b/3", 0), ("a/1", 3), ("a/large", 12 << 20), ("c", 3)]
        .map(|(key, size)| (key.to_owned(), size));
    assert_eq!(keys(store.list("").unwrap()), all);
    assert_eq!(keys(store.list("a/").unwrap()), all[1..3]);
    let block = "01HZX3Y4Z5A6B7C8D9EFGHJKMN";
    put(store, &format!("{block}/chunks/1"), b"four").unwrap();
    let files = BTreeMap::from([("chunks/1".to_owned(), 4)]);
    assert_eq!(
        store.list_blocks().unwrap(),
        BTreeMap::from([(Ulid::parse(block).unwrap(), files)])
    );
    for key in ["a/1", "none", "a/large"] {
        store.delete(key).unwrap();
        assert_eq!(store.read(key, 99).unwrap(), None);
    }
}

#[test]
fn a_directory_is_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = client(&BucketConfig::from_argument(dir.path().to_str().unwrap()).unwrap());
    check(&mut store);
    for key in ["../out", "/etc/none", "a/./b", "x.varve-unfinished"] {
        assert!(put(&mut store, key, b"x").is_err(), "{key}");
    }
    std::fs::write(dir.path().join("half.varve-unfinished"), "x").unwrap();
    assert_eq!(
        keys(store.list("").unwrap()).len(),
        3,
        "an unfinished object is not listed"
    );
    assert!(Path::new(&dir.path().join("a b/3")).is_file());
}

#[test]
fn an_s3_server_is_a_bucket() {
    let server = Server::start();
    check(&mut server.s3(SECRET));
    let stored = server.stored();
    assert!(
        stored.objects.keys().all(|key| key.starts_with("in/side/")),
        "{:?}",
        stored.objects.keys()
    );
    assert_eq!((stored.n_uploads, stored.uploads.len()), (1, 0));
}

#[test]
fn google_cloud_storage_is_a_bucket() {
    let server = Server::start();
    let issuer = Issuer::start(vec![token("t")]);
    server.stored().token = Some("t".to_owned());
    check(&mut server.gcs(&issuer));
    let stored = server.stored();
    assert_eq!((stored.n_uploads, stored.uploads.len()), (1, 0));
    assert_eq!(issuer.requests.lock().len(), 1);
}

#[test]
fn a_refused_token_is_renewed_once() {
    let server = Server::start();
    let issuer = Issuer::start(vec![token("old"), token("new"), token("newer")]);
    let mut store = server.gcs(&issuer);
    server.stored().token = Some("new".to_owned());
    put(&mut store, "a", b"x").unwrap();
    assert_eq!(server.stored().n_requests, 2);
    assert_eq!(issuer.requests.lock().len(), 2);
    server.stored().token = Some("other".to_owned());
    let error = format!("{:#}", store.read("a", 9).unwrap_err());
    assert!(error.contains("403: SignatureDoesNotMatch: no"), "{error}");
    assert_eq!(server.stored().n_requests, 4);
    assert_eq!(issuer.requests.lock().len(), 3);
}

#[test]
fn a_server_says_when_to_come_back() {
    let server = Server::start();
    *server.stored() = Stored {
        n_failures: 1,
        retry_after: 1,
        ..Stored::default()
    };
    let started = Instant::now();
    put(&mut server.s3(SECRET), "a", b"x").unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

fn token(name: &str) -> String {
    format!(r#"{{"access_token":"{name}","expires_in":3599,"token_type":"Bearer"}}"#)
}

#[test]
fn requests_are_repeated_after_temporary_failures() {
    let server = Server::start();
    let mut store = server.s3(SECRET);
    let bytes = vec![7; 11 << 20];
    for n_failures in [1, 2] {
        server.stored().n_failures = n_failures;
        put(&mut store, "a", &bytes).unwrap();
        server.stored().n_failures = n_failures;
        assert_eq!(store.read("a", 11 << 20).unwrap().unwrap(), bytes);
    }
    *server.stored() = Stored {
        n_failures: 9,
        ..Stored::default()
    };
    let error = format!("{:#}", store.list("").unwrap_err());
    assert!(
        error.contains("after 2 retries") && error.contains("500: InternalError: again"),
        "{error}"
    );
    assert_eq!(server.stored().n_requests, 3);
}

#[test]
fn a_rejected_request_is_not_repeated() {
    let server = Server::start();
    let error = format!("{:#}", put(&mut server.s3("wrong"), "a", b"x").unwrap_err());
    assert!(error.contains("403: SignatureDoesNotMatch: no"), "{error}");
    assert_eq!(server.stored().n_requests, 1);
}

#[test]
fn the_parts_of_an_interrupted_upload_are_removed() {
    let server = Server::start();
    let interrupted = |key: &str| (format!("in/side/{key}"), BTreeMap::from([(1, vec![0; 9])]));
    server.stored().uploads = BTreeMap::from([
        ("x".to_owned(), interrupted("a")),
        ("y".to_owned(), interrupted("ab")),
    ]);
    put(&mut server.s3(SECRET), "a", &vec![1; 6 << 20]).unwrap();
    assert_eq!(server.stored().uploads.keys().collect::<Vec<_>>(), ["y"]);
}

/// The client asked for further pages for ever, and logged nothing.
#[test]
fn a_list_that_makes_no_progress_fails() {
    let server = Server::start();
    let check = |page: fn(usize) -> String, expect: &str| {
        *server.stored() = Stored {
            list_page: Some(page),
            ..Stored::default()
        };
        let error = server.s3(SECRET).list("").unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(expect), "{error}");
        server.stored().n_requests
    };
    let n_requests = check(
        |n| {
            format!(
                "<R><IsTruncated>true</IsTruncated><NextContinuationToken>{n}</NextContinuationToken></R>"
            )
        },
        "returned 100 empty pages of a list in a row",
    );
    assert_eq!(n_requests, 100);
    let n_requests = check(
        |n| {
            format!(
                "<R><Contents><Key>in/side/{n}</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated>\
                 <NextContinuationToken>x</NextContinuationToken></R>"
            )
        },
        "returned the continuation token \"x\" of a list twice",
    );
    assert_eq!(n_requests, 2);
    // It was taken for the whole list.
    check(
        |_| "<R><IsTruncated>true</IsTruncated></R>".to_owned(),
        "returned a truncated list of objects without a continuation token: the response has no NextContinuationToken",
    );
}
