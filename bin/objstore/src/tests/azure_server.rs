//! A server with the protocol of Azure Blob Storage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use data_encoding::BASE64;
use jiff::Timestamp;
use parking_lot::Mutex;
use varve_client::Secret;

use super::http_server::{self, Answer, Received, decode};
use crate::authorization::SharedKey;
use crate::call::Call;

pub(super) const ACCOUNT: &str = "account1";
/// The words `s3cret key` in Base64.
pub(super) const KEY: &str = "czNjcmV0IGtleQ==";
pub(super) const SIGNATURE: &str = "sv=2022-11-02&sp=racwdl&sig=a%2Bb%3D";
/// Blobs per page of a list.
const PAGE_LEN: usize = 2;

/// What a request needs to be allowed.
#[derive(Debug, Default, Clone)]
pub(super) enum Allowed {
    #[default]
    Signed,
    /// The parameters of [`SIGNATURE`].
    Parameters,
    Token(String),
}

/// What the server stores.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) has_container: bool,
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// Blocks that are not a part of a blob yet, by blob and name.
    pub(super) blocks: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    pub(super) n_block_lists: usize,
    pub(super) n_requests: usize,
    pub(super) allowed: Allowed,
    /// Status and body of all responses to lists.
    pub(super) list_answer: Option<(u16, String)>,
}

#[derive(Debug, Clone)]
pub(super) struct Server(Arc<Mutex<Stored>>, pub(super) String);

impl Server {
    /// Starts a server with an empty container.
    pub(super) fn start() -> Self {
        let stored = Arc::new(Mutex::new(Stored {
            has_container: true,
            ..Stored::default()
        }));
        let serving = Self(Arc::clone(&stored), String::new());
        Self(
            stored,
            http_server::start(move |request| serving.answer(request)),
        )
    }

    pub(super) fn stored(&self) -> parking_lot::MutexGuard<'_, Stored> {
        self.0.lock()
    }

    fn answer(&self, request: &Received) -> Answer {
        let mut stored = self.stored();
        stored.n_requests += 1;
        assert_eq!(request.headers["x-ms-version"], "2020-10-02");
        if !stored.allowed.contains(request) {
            return error(403, "AuthenticationFailed");
        }
        if request.method == "PUT" && !request.body.is_empty() {
            let md5 = BASE64.encode(&md5::compute(&request.body).0);
            assert_eq!(request.headers["content-md5"], md5);
        }
        let path = decode(request.path.strip_prefix("/account1/my-container").unwrap());
        let params = request.params();
        let comp = params.get("comp").map_or("", String::as_str);
        match path.strip_prefix('/') {
            Some(blob) => stored.answer_blob(request, blob, comp, &params),
            None => stored.answer_container(request, comp, &params),
        }
    }
}

impl Allowed {
    fn contains(&self, request: &Received) -> bool {
        let given = request.headers.get("authorization");
        match self {
            Self::Signed => given.is_some_and(|given| *given == sign(request)),
            Self::Parameters => given.is_none() && request.query.ends_with(SIGNATURE),
            Self::Token(token) => given.is_some_and(|given| *given == format!("Bearer {token}")),
        }
    }
}

impl Stored {
    fn answer_container(
        &mut self,
        request: &Received,
        comp: &str,
        params: &HashMap<String, String>,
    ) -> Answer {
        assert_eq!(params["restype"], "container");
        match (request.method.as_str(), comp) {
            ("PUT", "") if self.has_container => error(409, "ContainerAlreadyExists"),
            ("PUT", "") => {
                self.has_container = true;
                Answer::new(201, "")
            }
            ("GET", "list") if !self.has_container => error(404, "ContainerNotFound"),
            ("GET", "list") => match &self.list_answer {
                Some((status, body)) => Answer::new(*status, body.clone()),
                None => Answer::new(200, self.list(params)),
            },
            other => panic!("{other:?}"),
        }
    }

    fn answer_blob(
        &mut self,
        request: &Received,
        blob: &str,
        comp: &str,
        params: &HashMap<String, String>,
    ) -> Answer {
        if !self.has_container {
            return error(404, "ContainerNotFound");
        }
        match (request.method.as_str(), comp) {
            ("PUT", "") => {
                assert_eq!(request.headers["x-ms-blob-type"], "BlockBlob");
                self.blobs.insert(blob.to_owned(), request.body.clone());
                Answer::new(201, "")
            }
            ("PUT", "block") => {
                let name = params["blockid"].clone();
                let blocks = self.blocks.entry(blob.to_owned()).or_default();
                let size = decoded_size(&name);
                if blocks.keys().any(|other| decoded_size(other) != size) {
                    return error(400, "InvalidBlobOrBlock");
                }
                blocks.insert(name, request.body.clone());
                Answer::new(201, "")
            }
            ("PUT", "blocklist") => {
                let list = String::from_utf8(request.body.clone()).unwrap();
                let mut blocks = self.blocks.remove(blob).unwrap_or_default();
                let mut bytes = Vec::new();
                for name in crate::xml::elements(&list, "Latest") {
                    match blocks.remove(name) {
                        Some(block) => bytes.extend(block),
                        None => return error(400, "InvalidBlockList"),
                    }
                }
                self.n_block_lists += 1;
                self.blobs.insert(blob.to_owned(), bytes);
                Answer::new(201, "")
            }
            ("GET", "") => match self.blobs.get(blob) {
                None => error(404, "BlobNotFound"),
                Some(object) => match request.range_of(object) {
                    Some(range) => Answer::new(206, range),
                    None => error(416, "InvalidRange"),
                },
            },
            ("DELETE", "") => {
                assert_eq!(request.headers["x-ms-delete-snapshots"], "include");
                match self.blobs.remove(blob) {
                    Some(_) => Answer::new(202, ""),
                    None => error(404, "BlobNotFound"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns a page of a list, with a directory of each blob, as accounts with a hierarchical
    /// namespace have it.
    fn list(&self, params: &HashMap<String, String>) -> String {
        let prefix = params.get("prefix").map_or("", String::as_str);
        let marker = params.get("marker").map_or(0, |text| text.parse().unwrap());
        let mut page = String::new();
        let found: Vec<_> = self
            .blobs
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .collect();
        for (name, bytes) in found.iter().skip(marker).take(PAGE_LEN) {
            page.push_str(&format!(
                "<Blob><Name>{name}.d</Name><Properties><Content-Length>0</Content-Length>\
                 <ResourceType>directory</ResourceType></Properties></Blob>\
                 <Blob><Name>{name}</Name><Properties><Content-Length>{}</Content-Length>\
                 <BlobType>BlockBlob</BlobType><ResourceType>file</ResourceType></Properties></Blob>",
                bytes.len()
            ));
        }
        let next = marker + PAGE_LEN;
        let next = if next < found.len() {
            format!("<NextMarker>{next}</NextMarker>")
        } else {
            "<NextMarker />".to_owned()
        };
        format!(
            "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Blobs>{page}</Blobs>{next}</EnumerationResults>"
        )
    }
}

/// Returns the size of the name of a block, which is Base64.
fn decoded_size(name: &str) -> usize {
    BASE64.decode(name.as_bytes()).unwrap().len()
}

fn error(status: u16, code: &str) -> Answer {
    let body = format!("<?xml?><Error><Code>{code}</Code><Message>no\nTime:now</Message></Error>");
    let mut answer = Answer::new(status, body);
    answer.headers.push(format!("x-ms-error-code: {code}"));
    answer
}

/// Returns the signature of what was received.
fn sign(request: &Received) -> String {
    let fields = request
        .query
        .split('&')
        .filter_map(|field| field.split_once('='));
    let query: Vec<_> = fields.map(|(name, value)| (name, decode(value))).collect();
    let call = Call {
        operation: "test",
        method: match &*request.method {
            "GET" => "GET",
            "PUT" => "PUT",
            _ => "DELETE",
        },
        path: request.path.clone(),
        query: query
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect(),
        headers: Vec::new(),
        body: request.body.clone().into(),
    };
    let headers = request
        .headers
        .iter()
        .filter(|(name, _)| *name != "x-ms-date");
    let headers: Vec<_> = headers
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let date = &request.headers["x-ms-date"];
    let now = jiff::fmt::rfc2822::parse(date).unwrap().timestamp();
    assert!(Timestamp::now().duration_since(now).as_secs().abs() < 60);
    let key = SharedKey::new(ACCOUNT, &Secret(KEY.to_owned())).unwrap();
    let signed = key.sign(&call, &headers, now);
    signed.into_iter().next_back().unwrap().1
}
