//! A bucket of S3, of a compatible server, or of Google Cloud Storage through its XML API.
//!
//! Objects larger than a part are sent in parts. An interrupted upload is aborted when the same key
//! is sent again. For other keys, the bucket needs a lifecycle rule that aborts incomplete uploads.
//!
//! Sources: the Amazon S3 API reference, and "XML API" in the reference of Cloud Storage.

use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use data_encoding::BASE64;
use hyper::header::ETAG;
use varve_client::Response;

use crate::authorization::Authorization;
use crate::call::{Call, encode};
use crate::config::{GcsConfig, S3Config};
use crate::credentials::CachedCredentials;
use crate::listing::Listing;
use crate::metrics::ObjstoreMetrics;
use crate::object::Object;
use crate::pace::{Pace, Stop};
use crate::requests::{BEHIND_THE_END, Requests, Server, next_part, part_size, reason, text};
use crate::xml;

pub(super) struct S3 {
    requests: Requests,
    /// What precedes a key in a path.
    root: String,
    encryption: Vec<(String, String)>,
    /// `true` if requests carry the CRC-32C of their body: signatures of S3 have its SHA-256.
    has_crc32c: bool,
    part_size: u64,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3")
            .field("host", &self.requests.host())
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl S3 {
    pub(super) fn new(
        config: &S3Config,
        stop: Arc<Stop>,
        metrics: ObjstoreMetrics,
    ) -> Result<Self> {
        let (host, root) = if config.is_virtual_hosted {
            (
                format!("{}.{}", config.bucket, config.endpoint),
                "/".to_owned(),
            )
        } else {
            (config.endpoint.clone(), path_of(&config.bucket))
        };
        let server = Server {
            host,
            is_insecure: config.is_insecure,
            access: config.access.clone(),
            authorization: Authorization::Signature {
                credentials: CachedCredentials::new(config.credentials.clone()),
                region: config.region.clone(),
            },
            retries_max: config.retries_max,
        };
        Ok(Self {
            requests: Requests::new(server, stop, metrics)?,
            root,
            encryption: config.encryption.clone(),
            has_crc32c: false,
            part_size: config.part_size,
        })
    }

    /// Creates a client of Google Cloud Storage.
    pub(super) fn of_gcs(
        config: &GcsConfig,
        stop: Arc<Stop>,
        metrics: ObjstoreMetrics,
    ) -> Result<Self> {
        let server = Server {
            host: config.host.clone(),
            is_insecure: config.is_insecure,
            access: config.access.clone(),
            authorization: Authorization::of_tokens(config.credentials.clone()),
            retries_max: config.retries_max,
        };
        Ok(Self {
            requests: Requests::new(server, stop, metrics)?,
            root: path_of(&config.bucket),
            encryption: Vec::new(),
            has_crc32c: true,
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
            return self.put_parts(key, size, part_size, source, pace);
        }
        let body = next_part(size, source, pace)?;
        let mut call = self.call("put", "PUT", Some(key));
        call.headers = [self.encryption.clone(), self.checksum(&body)].concat();
        call.body = body;
        self.requests.expect(&call).map(drop)
    }

    fn put_parts(
        &mut self,
        key: &str,
        size: u64,
        part_size: u64,
        source: &mut dyn Read,
        pace: &mut Pace,
    ) -> Result<()> {
        self.abort_uploads(key)?;
        let mut begin = self.call("multipart", "POST", Some(key));
        begin.query = vec![("uploads", "")];
        begin.headers = self.encryption.clone();
        let begun = self.requests.expect(&begin)?;
        let upload = xml::required(&text(&begun), "UploadId")?;

        let mut list = String::from("<CompleteMultipartUpload>");
        for (number, start) in (1_u32..).zip((0..size).step_by(part_size as usize)) {
            let body = next_part(part_size.min(size - start), source, pace)?;
            let number = number.to_string();
            let mut part = self.call("put", "PUT", Some(key));
            part.query = vec![("partNumber", &*number), ("uploadId", &*upload)];
            part.headers = self.checksum(&body);
            part.body = body;
            let sent = self.requests.expect(&part)?;
            let tag = sent
                .headers
                .get(ETAG)
                .and_then(|tag| tag.to_str().ok())
                .context("a part has no ETag")?;
            let tag = xml::escape(tag);
            list.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            ));
        }
        list.push_str("</CompleteMultipartUpload>");

        let mut end = self.call("multipart", "POST", Some(key));
        end.query = vec![("uploadId", &*upload)];
        end.body = list.into();
        let ended = self.requests.expect(&end)?;
        // This response begins before the server has finished, so an error may follow the status 200.
        let body = text(&ended);
        ensure!(
            !body.contains("<Error>"),
            "finish the upload: {}",
            reason(&ended)
        );
        xml::required(&body, "ETag").map(drop)
    }

    /// Removes the parts of interrupted uploads of a key.
    fn abort_uploads(&mut self, key: &str) -> Result<()> {
        let mut find = self.call("multipart", "GET", None);
        find.query = vec![("prefix", key), ("uploads", "")];
        let found = self.requests.expect(&find)?;
        let body = text(&found);
        for upload in xml::elements(&body, "Upload")
            .filter(|upload| xml::text(upload, "Key").as_deref() == Some(key))
        {
            let id = xml::required(upload, "UploadId")?;
            let mut abort = self.call("multipart", "DELETE", Some(key));
            abort.query = vec![("uploadId", &*id)];
            // 404: the server has removed it meanwhile.
            self.requests.send(&abort)?;
        }
        Ok(())
    }

    pub(super) fn get_range(&mut self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        let range = format!("bytes={offset}-{}", offset + size - 1);
        let mut call = self.call("get", "GET", Some(key));
        call.headers = vec![("range".to_owned(), range)];
        let response = self.requests.send(&call)?;
        Ok(match response.status {
            404 => None,
            BEHIND_THE_END => Some(Bytes::new()),
            _ => {
                self.requests.metrics().count_received(response.body.len());
                Some(response.body)
            }
        })
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<Object>> {
        let mut listing = Listing::default();
        loop {
            let page = self.list_page(prefix, listing.token())?;
            let page = text(&page);
            let mut objects = Vec::new();
            for object in xml::elements(&page, "Contents") {
                let size = xml::required(object, "Size")?
                    .parse()
                    .context("the size of an object")?;
                objects.push(Object {
                    key: xml::required(object, "Key")?,
                    size,
                });
            }
            listing.add(objects)?;
            if xml::text(&page, "IsTruncated").as_deref() != Some("true") {
                return Ok(listing.finish());
            }

            let host = self.requests.host();
            let next = xml::required(&page, "NextContinuationToken");
            let next = next.with_context(|| {
                format!("{host} returned a truncated list of objects without a continuation token")
            });
            listing.continue_at(host, next?)?;
        }
    }

    fn list_page(&mut self, prefix: &str, token: &str) -> Result<Response> {
        let mut call = self.call("list", "GET", None);
        if !token.is_empty() {
            call.query.push(("continuation-token", token));
        }
        call.query.extend([("list-type", "2"), ("prefix", prefix)]);
        self.requests.expect(&call)
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<()> {
        let call = self.call("delete", "DELETE", Some(key));
        self.requests.send(&call).map(drop)
    }

    /// Returns a request for an object, or for the bucket itself.
    fn call<'a>(
        &self,
        operation: &'static str,
        method: &'static str,
        key: Option<&str>,
    ) -> Call<'a> {
        let path = match key {
            Some(key) => format!("{}{}", self.root, encode(key, true)),
            None if self.root == "/" => "/".to_owned(),
            // A bucket is named without the slash after it.
            None => self.root.trim_end_matches('/').to_owned(),
        };
        Call::new(operation, method, path)
    }

    /// Returns the header with which the server checks the bytes of an object, unless the signature
    /// has their checksum.
    #[expect(clippy::big_endian_bytes, reason = "the protocol demands it")]
    fn checksum(&self, body: &[u8]) -> Vec<(String, String)> {
        if !self.has_crc32c {
            return Vec::new();
        }
        let crc32c = BASE64.encode(&crc32c::crc32c(body).to_be_bytes());
        vec![("x-goog-hash".to_owned(), format!("crc32c={crc32c}"))]
    }
}

/// Returns the path of a bucket whose name is not part of the host name.
fn path_of(bucket: &str) -> String {
    format!("/{}/", encode(bucket, false))
}
