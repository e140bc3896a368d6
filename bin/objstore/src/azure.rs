//! A container of Azure Blob Storage.
//!
//! Objects larger than a part are sent as blocks, which one more request makes an object. The server
//! removes the blocks of an interrupted upload after a week, or when an object of their key is
//! stored.
//!
//! Each request that stores bytes has their MD5, which the server checks. Azure also knows a CRC-64
//! (`x-ms-content-crc64`), but that is computed nowhere else in Varve, and the emulator Azurite does
//! not check it.
//!
//! Source: "Blob Storage REST API" in the reference of Azure Storage.

use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use data_encoding::BASE64;
use varve_client::Response;

use crate::authorization::Authorization;
use crate::call::{BucketPath, Call};
use crate::config::{AzureConfig, AzureCredentials};
use crate::listing::{Page, read_pages};
use crate::metrics::ObjstoreMetrics;
use crate::object::Object;
use crate::pace::{Pace, Stop};
use crate::requests::{Requests, Server, error_code, next_part, part_size, parts, text};
use crate::xml;

/// Version of the API. Since 2020-06-12, a list says which of its entries are directories.
const VERSION: &str = "2020-10-02";
/// The code of errors for a container that does not exist.
const CONTAINER_NOT_FOUND: &str = "ContainerNotFound";

pub(super) struct Azure {
    requests: Requests,
    path: BucketPath,
    /// `true` if the first object creates a missing container.
    creates_container: bool,
    part_size: u64,
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure")
            .field("host", &self.requests.host())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Azure {
    pub(super) fn new(
        config: &AzureConfig,
        stop: Arc<Stop>,
        metrics: ObjstoreMetrics,
    ) -> Result<Self> {
        let authorization = match config.credentials.clone() {
            AzureCredentials::SharedKey(key) => Authorization::SharedKey(key),
            AzureCredentials::SharedAccessSignature(signature) => {
                Authorization::SharedAccessSignature(signature)
            }
            AzureCredentials::Tokens(source) => Authorization::of_tokens(Some(source)),
        };
        let server = Server {
            host: config.host.clone(),
            is_insecure: config.is_insecure,
            access: config.access.clone(),
            authorization,
            retries_max: config.retries_max,
        };
        Ok(Self {
            requests: Requests::new(server, stop, metrics)?,
            path: BucketPath::below(&config.server_path, &config.container),
            creates_container: config.creates_container,
            part_size: config.part_size,
        })
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        let part_size = part_size(self.part_size, size);
        if size > part_size {
            return self.put_blocks(key, size, part_size, source, pace);
        }
        let mut call = self.call("put", "PUT", Some(key));
        call.headers
            .push(("x-ms-blob-type".to_owned(), "BlockBlob".to_owned()));
        add_body(&mut call, next_part(size, source, pace)?);
        self.store(&call)
    }

    fn put_blocks(
        &mut self,
        key: &str,
        size: u64,
        part_size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut list = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for (number, size) in parts(size, part_size) {
            // The names of all blocks of an object must have the same length.
            let name = BASE64.encode(format!("{number:08}").as_bytes());
            let mut block = self.call("put", "PUT", Some(key));
            block.query = vec![("blockid", &*name), ("comp", "block")];
            add_body(&mut block, next_part(size, source, pace)?);
            self.store(&block)?;
            list.push_str(&format!("<Latest>{name}</Latest>"));
        }
        list.push_str("</BlockList>");

        let mut end = self.call("multipart", "PUT", Some(key));
        end.query = vec![("comp", "blocklist")];
        add_body(&mut end, list.into());
        self.store(&end)
    }

    /// Sends a request that stores bytes. Creates a missing container first, if the configuration
    /// allows it.
    fn store(&mut self, call: &Call<'_>) -> Result<()> {
        let response = self.requests.send(call)?;
        if !self.may_create_container(&response) {
            return self.check(&response);
        }
        let mut create = self.call("put", "PUT", None);
        create.query = vec![("restype", "container")];
        let created = self.requests.expect(&create);
        created.context("create the container (config.storage_create_container)")?;
        let response = self.requests.send(call)?;
        self.check(&response)
    }

    pub(super) fn get_range(&mut self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        let call = self.call("get", "GET", Some(key));
        self.requests.get_range(call, offset, size)
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<Object>> {
        let host = self.requests.host().to_owned();
        read_pages(&host, |marker| self.list_page(prefix, marker))
    }

    fn list_page(&mut self, prefix: &str, marker: &str) -> Result<Page> {
        let mut call = self.call("list", "GET", None);
        call.query.push(("comp", "list"));
        if !marker.is_empty() {
            call.query.push(("marker", marker));
        }
        if !prefix.is_empty() {
            call.query.push(("prefix", prefix));
        }
        call.query.push(("restype", "container"));
        let response = self.requests.send(&call)?;
        if self.may_create_container(&response) {
            // It has no objects yet: the first one creates it.
            return Ok(Page::default());
        }
        self.check(&response)?;

        let page = text(&response);
        ensure!(
            page.contains("<EnumerationResults"),
            "{} returned no list of blobs: {}",
            self.requests.host(),
            response.text()
        );
        let mut objects = Vec::new();
        for blob in xml::elements(&page, "Blob") {
            // Accounts with a hierarchical namespace also list directories.
            if xml::text(blob, "ResourceType").as_deref() == Some("directory") {
                continue;
            }
            let size = xml::required(blob, "Content-Length")?
                .parse()
                .context("the size of a blob")?;
            objects.push(Object {
                key: xml::required(blob, "Name")?,
                size,
            });
        }
        let next = xml::text(&page, "NextMarker").filter(|marker| !marker.is_empty());
        Ok(Page { objects, next })
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<()> {
        let mut call = self.call("delete", "DELETE", Some(key));
        // Without this header, the server does not delete a blob that has snapshots.
        call.headers
            .push(("x-ms-delete-snapshots".to_owned(), "include".to_owned()));
        self.requests.send(&call).map(drop)
    }

    /// Returns a request for an object, or for the container itself.
    fn call<'a>(
        &self,
        operation: &'static str,
        method: &'static str,
        key: Option<&str>,
    ) -> Call<'a> {
        let mut call = self.path.call(operation, method, key);
        call.headers
            .push(("x-ms-version".to_owned(), VERSION.to_owned()));
        call
    }

    /// Returns `true` if the container is missing, and the configuration allows to create it.
    fn may_create_container(&self, response: &Response) -> bool {
        self.creates_container && error_code(response).as_deref() == Some(CONTAINER_NOT_FOUND)
    }

    /// # Errors
    /// If a response is not a success.
    fn check(&self, response: &Response) -> Result<()> {
        if response.is_success() {
            Ok(())
        } else {
            Err(self.requests.rejection(response))
        }
    }
}

/// Adds a body, and the header with which the server checks it.
fn add_body(call: &mut Call<'_>, body: Bytes) {
    let md5 = BASE64.encode(&md5::compute(&body).0);
    call.headers.push(("content-md5".to_owned(), md5));
    call.body = body;
}
