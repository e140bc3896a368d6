//! Azure Blob Storage, on a server that checks signatures, tokens and checksums.

use varve_client::Access;

use super::azure_server::{ACCOUNT, Allowed, KEY, SIGNATURE, Server};
use super::{check, client, put, token};
use crate::ObjectStore;
use crate::config::{AzureConfig, AzureCredentials, BackendConfig, BucketConfig};
use crate::credentials::test_issuer::{Issuer, of};
use crate::credentials::{TokenSource, azure};
use crate::limits::MIB;

impl Server {
    /// Returns a client with the key of the account.
    fn signing(&self, fields: &str) -> ObjectStore {
        let credentials = format!("AccountName={ACCOUNT};AccountKey={}", KEY);
        self.connect(&credentials, fields)
    }

    fn connect(&self, credentials: &str, fields: &str) -> ObjectStore {
        let config = format!(
            "type: AZURE\nprefix: in/side\nconfig: {{container: my-container, storage_account: x, max_retries: 2, \
             storage_connection_string: 'BlobEndpoint=http://{}/{ACCOUNT};{credentials}', {fields}}}",
            self.1
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bucket.yml");
        std::fs::write(&path, config).unwrap();
        client(&BucketConfig::load(&path).unwrap())
    }

    /// Returns a client with tokens of a metadata service.
    fn with_tokens(&self, issuer: &Issuer) -> ObjectStore {
        let variables = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", &*issuer.url)];
        let source = azure::Source::find(&of(&variables)).unwrap();
        let config = AzureConfig {
            host: self.1.clone(),
            is_insecure: true,
            server_path: format!("/{ACCOUNT}"),
            container: "my-container".to_owned(),
            creates_container: false,
            credentials: AzureCredentials::Tokens(TokenSource::Azure(source)),
            access: Access::default(),
            part_size: MIB,
            retries_max: 2,
        };
        client(&BucketConfig {
            backend: BackendConfig::Azure(Box::new(config)),
            prefix: "in/side/".to_owned(),
        })
    }
}

#[test]
fn azure_blob_storage_is_a_bucket() {
    let server = Server::start();
    check(&mut server.signing(""));
    let stored = server.stored();
    assert!(
        stored.blobs.keys().all(|key| key.starts_with("in/side/")),
        "{:?}",
        stored.blobs.keys()
    );
    // The large object has 12 MiB, and a part of Azure 16.
    assert_eq!(stored.n_block_lists, 0);
}

#[test]
fn azure_accepts_a_shared_access_signature() {
    let server = Server::start();
    server.stored().allowed = Allowed::Parameters;
    let credentials = format!("SharedAccessSignature={SIGNATURE}");
    check(&mut server.connect(&credentials, ""));
    server.stored().allowed = Allowed::Signed;
    let error = server.connect(&credentials, "").list("").unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("403: AuthenticationFailed: no"), "{error}");
    assert!(!error.contains("a%2Bb"), "{error}");
}

#[test]
fn azure_accepts_tokens_and_large_objects_have_blocks() {
    let server = Server::start();
    let issuer = Issuer::start(vec![token("old"), token("new")]);
    let mut store = server.with_tokens(&issuer);
    server.stored().allowed = Allowed::Token("old".to_owned());
    check(&mut store);
    assert_eq!(issuer.requests.lock().len(), 1);
    // The large object has twelve blocks.
    assert_eq!(server.stored().n_block_lists, 1);
    assert!(server.stored().blocks.is_empty());
    server.stored().allowed = Allowed::Token("new".to_owned());
    assert_eq!(store.read("c", 3).unwrap().unwrap(), b"sea");
    assert_eq!(issuer.requests.lock().len(), 2);
}

#[test]
fn the_first_object_creates_a_missing_container_unless_it_must_not() {
    let server = Server::start();
    server.stored().has_container = false;
    let mut store = server.signing("storage_create_container: false");
    for error in [
        put(&mut store, "a", b"x").unwrap_err(),
        store.list("").unwrap_err(),
    ] {
        let error = format!("{error:#}");
        assert!(error.contains("404: ContainerNotFound: no"), "{error}");
    }
    assert_eq!(store.read("a", 9).unwrap(), None);

    let mut store = server.signing("");
    assert_eq!(store.list("").unwrap(), []);
    assert_eq!(store.read("a", 9).unwrap(), None);
    store.delete("a").unwrap();
    assert!(!server.stored().has_container, "only an object creates it");
    put(&mut store, "a", b"x").unwrap();
    assert_eq!(store.read("a", 9).unwrap().unwrap(), b"x");
}

#[test]
fn a_list_of_azure_that_makes_no_progress_fails() {
    let server = Server::start();
    let page = |blobs: &str| {
        format!(
            "<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>x</NextMarker></EnumerationResults>"
        )
    };
    let blob = "<Blob><Name>in/side/a</Name><Content-Length>1</Content-Length></Blob>";
    for (status, body, expect, n_requests) in [
        (
            200,
            page(blob),
            "returned the continuation token \"x\" of a list twice",
            2,
        ),
        (
            200,
            "<html>sign in</html>".to_owned(),
            "returned no list of blobs: <html>sign in</html>",
            1,
        ),
        (
            200,
            page("<Blob><Name>a</Name></Blob>"),
            "the response has no Content-Length",
            1,
        ),
        (503, "busy".to_owned(), "after 2 retries", 3),
    ] {
        server.stored().list_answer = Some((status, body));
        server.stored().n_requests = 0;
        let error = format!("{:#}", server.signing("").list("").unwrap_err());
        assert!(error.contains(expect), "{error}");
        assert_eq!(server.stored().n_requests, n_requests, "{expect}");
    }
}
