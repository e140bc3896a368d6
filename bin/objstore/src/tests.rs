//! The same operations on a directory and on an S3 server that checks signatures and fails at
//! will.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use parking_lot::Mutex;
use varve_client::Secret;

use super::*;
use crate::credentials::Credentials;
use crate::sign::{Signer, Unsigned};

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "s3cret";
const REGION: &str = "eu-test-1";
/// Objects per page of a list.
const PAGE_LEN: usize = 2;

/// What the server stores.
#[derive(Debug, Default)]
struct Stored {
    objects: BTreeMap<String, Vec<u8>>,
    /// Parts by upload, with its key.
    uploads: BTreeMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    n_uploads: usize,
    /// Number of requests that are still to fail with 500.
    n_failures: usize,
    n_requests: usize,
    /// Makes a page of a list from the number of requests, instead of what is stored.
    list_page: Option<fn(usize) -> String>,
}

#[derive(Debug, Clone)]
struct Server(Arc<Mutex<Stored>>, String);

struct Received {
    method: String,
    path: String,
    query: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self(Arc::default(), listener.local_addr().unwrap().to_string());
        let accepting = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = accepting.clone();
                std::thread::spawn(move || serving.serve(stream.unwrap()));
            }
        });
        server
    }

    fn stored(&self) -> parking_lot::MutexGuard<'_, Stored> {
        self.0.lock()
    }

    fn client(&self, secret: &str) -> ObjectStore {
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

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = Received::read(&mut reader) {
            let (status, body) = self.respond(&request);
            let tag = if request.method == "PUT" {
                "etag: \"t&g\"\r\n"
            } else {
                ""
            };
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n{tag}\r\n",
                body.len()
            );
            reader
                .get_mut()
                .write_all(&[head.as_bytes(), &body].concat())
                .unwrap();
        }
    }

    /// Returns status and body.
    fn respond(&self, request: &Received) -> (u16, Vec<u8>) {
        let mut stored = self.stored();
        stored.n_requests += 1;
        if stored.n_failures > 0 {
            stored.n_failures -= 1;
            return (
                500,
                b"<Error><Code>InternalError</Code><Message>again</Message></Error>".to_vec(),
            );
        }
        if !request.is_signed() {
            return (
                403,
                b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>".to_vec(),
            );
        }
        let key = request
            .path
            .strip_prefix("/my-bucket")
            .unwrap()
            .trim_start_matches('/')
            .replace("%20", " ");
        let query: HashMap<_, _> = request
            .query
            .split('&')
            .filter_map(|part| part.split_once('='))
            .collect();
        let ok = |text: String| (200, text.into_bytes());
        match (request.method.as_str(), query.get("uploadId").copied()) {
            ("PUT", Some(id)) => {
                let number = query["partNumber"].parse().unwrap();
                stored
                    .uploads
                    .get_mut(id)
                    .unwrap()
                    .1
                    .insert(number, request.body.clone());
                ok(String::new())
            }
            ("PUT", None) => {
                stored.objects.insert(key, request.body.clone());
                ok(String::new())
            }
            ("POST", None) => {
                stored.n_uploads += 1;
                let id = format!("u{}", stored.n_uploads);
                stored.uploads.insert(id.clone(), (key, BTreeMap::new()));
                ok(format!("<R><UploadId>{id}</UploadId></R>"))
            }
            ("POST", Some(id)) => {
                let (key, parts) = stored.uploads.remove(id).unwrap();
                let named = String::from_utf8(request.body.clone())
                    .unwrap()
                    .matches("<ETag>&quot;t&amp;g")
                    .count();
                assert_eq!(named, parts.len(), "each part is named by its ETag");
                stored
                    .objects
                    .insert(key, parts.into_values().flatten().collect());
                ok("<R><ETag>x</ETag></R>".to_owned())
            }
            ("DELETE", Some(id)) => {
                stored.uploads.remove(id);
                ok(String::new())
            }
            ("DELETE", None) => {
                stored.objects.remove(&key);
                (204, vec![])
            }
            ("GET", None) if query.contains_key("uploads") => {
                let one = |(id, (key, _)): (&String, &(String, _))| {
                    format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>")
                };
                ok(stored.uploads.iter().map(one).collect())
            }
            ("GET", None) if query.contains_key("list-type") => match stored.list_page {
                Some(page) => ok(page(stored.n_requests)),
                None => ok(list(&stored, &query)),
            },
            ("GET", None) => {
                match stored.objects.get(&key) {
                    None => (
                        404,
                        b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>".to_vec(),
                    ),
                    Some(object) => {
                        let (start, end) = request.headers["range"]
                            .strip_prefix("bytes=")
                            .unwrap()
                            .split_once('-')
                            .unwrap();
                        let (start, end): (usize, usize) =
                            (start.parse().unwrap(), end.parse().unwrap());
                        match object.get(start..object.len().min(end + 1)).filter(|range| !range.is_empty()) {
                        Some(range) => (206, range.to_vec()),
                        None => (416, b"<Error><Code>InvalidRange</Code><Message>behind</Message></Error>".to_vec()),
                    }
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn list(stored: &Stored, query: &HashMap<&str, &str>) -> String {
    let prefix = query["prefix"].replace("%2F", "/");
    let entries: Vec<_> = stored
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .collect();
    let start = query
        .get("continuation-token")
        .map_or(0, |token| token.parse().unwrap());
    let one = |(key, object): &(&String, &Vec<u8>)| {
        format!(
            "<Contents><Key>{key}</Key><Size>{}</Size></Contents>",
            object.len()
        )
    };
    let page: String = entries.iter().skip(start).take(PAGE_LEN).map(one).collect();
    let is_truncated = start + PAGE_LEN < entries.len();
    let next = format!(
        "<NextContinuationToken>{}</NextContinuationToken>",
        start + PAGE_LEN
    );
    let next = if is_truncated { next } else { String::new() };
    format!("<R>{page}<IsTruncated>{is_truncated}</IsTruncated>{next}</R>")
}

impl Received {
    fn read(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (method, target) = line.split_once(' ')?;
        let (path, query) = target
            .split(' ')
            .next()?
            .split_once('?')
            .unwrap_or((target.split(' ').next()?, ""));
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let size = headers
            .get("content-length")
            .map_or(0, |size| size.parse().unwrap());
        let mut body = vec![0; size];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            method,
            path,
            query,
            headers,
            body,
        })
    }

    /// Signs what was received again.
    fn is_signed(&self) -> bool {
        let given = &self.headers["authorization"];
        let names = given
            .split_once("SignedHeaders=")
            .unwrap()
            .1
            .split(',')
            .next()
            .unwrap();
        let added = ["x-amz-content-sha256", "x-amz-date"];
        let headers: Vec<_> = names
            .split(';')
            .filter(|name| !added.contains(name))
            .map(|name| (name.to_owned(), self.headers[name].clone()))
            .collect();
        let credentials =
            Credentials::new(KEY.to_owned(), Secret(SECRET.to_owned()), Secret::default());
        let signer = Signer {
            credentials: &credentials,
            region: REGION,
        };
        let now =
            jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", &self.headers["x-amz-date"]).unwrap();
        let now = now.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
        let Self {
            method,
            path,
            query,
            body,
            ..
        } = self;
        let signed = signer.sign(
            Unsigned {
                method,
                path,
                query,
                headers: &headers,
                body,
            },
            now,
        );
        signed
            .iter()
            .any(|(name, value)| name == "authorization" && value == given)
    }
}

fn client(config: &BucketConfig) -> ObjectStore {
    ObjectStore::new(config, Pace::unlimited(), ObjstoreMetrics::unregistered()).unwrap()
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
    check(&mut server.client(SECRET));
    let stored = server.stored();
    assert!(
        stored.objects.keys().all(|key| key.starts_with("in/side/")),
        "{:?}",
        stored.objects.keys()
    );
    assert_eq!((stored.n_uploads, stored.uploads.len()), (1, 0));
}

#[test]
fn requests_are_repeated_after_temporary_failures() {
    let server = Server::start();
    let mut store = server.client(SECRET);
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
    let error = format!(
        "{:#}",
        put(&mut server.client("wrong"), "a", b"x").unwrap_err()
    );
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
    put(&mut server.client(SECRET), "a", &vec![1; 6 << 20]).unwrap();
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
        let error = server.client(SECRET).list("").unwrap_err();
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
