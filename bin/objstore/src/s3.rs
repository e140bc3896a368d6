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
use crate::call::BucketPath;
use crate::config::{GcsConfig, S3Config};
use crate::credentials::CachedCredentials;
use crate::listing::{Page, read_pages};
use crate::metrics::ObjstoreMetrics;
use crate::object::Object;
use crate::pace::{Pace, Stop};
use crate::requests::{Requests, Server, next_part, part_size, parts, reason, text};
use crate::xml;

pub(super) struct S3 {
    requests: Requests,
    path: BucketPath,
    encryption: Vec<(String, String)>,
    /// `true` if requests carry the CRC-32C of their body: signatures of S3 have its SHA-256.
    has_crc32c: bool,
    part_size: u64,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3")
            .field("host", &self.requests.host())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl S3 {
    pub(super) fn new(
        config: &S3Config,
        stop: Arc<Stop>,
        metrics: ObjstoreMetrics,
    ) -> Result<Self> {
        let (host, path) = if config.is_virtual_hosted {
            (
                format!("{}.{}", config.bucket, config.endpoint),
                BucketPath::of_host(),
            )
        } else {
            (
                config.endpoint.clone(),
                BucketPath::below("", &config.bucket),
            )
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
            path,
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
            path: BucketPath::below("", &config.bucket),
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
        let mut call = self.path.call("put", "PUT", Some(key));
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
        let mut begin = self.path.call("multipart", "POST", Some(key));
        begin.query = vec![("uploads", "")];
        begin.headers = self.encryption.clone();
        let begun = self.requests.expect(&begin)?;
        let upload = xml::required(&text(&begun), "UploadId")?;

        let mut list = String::from("<CompleteMultipartUpload>");
        for (number, size) in parts(size, part_size) {
            let body = next_part(size, source, pace)?;
            let number = number.to_string();
            let mut part = self.path.call("put", "PUT", Some(key));
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

        let mut end = self.path.call("multipart", "POST", Some(key));
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
        let mut find = self.path.call("multipart", "GET", None);
        find.query = vec![("prefix", key), ("uploads", "")];
        let found = self.requests.expect(&find)?;
        let body = text(&found);
        for upload in xml::elements(&body, "Upload")
            .filter(|upload| xml::text(upload, "Key").as_deref() == Some(key))
        {
            let id = xml::required(upload, "UploadId")?;
            let mut abort = self.path.call("multipart", "DELETE", Some(key));
            abort.query = vec![("uploadId", &*id)];
            // 404: the server has removed it meanwhile.
            self.requests.send(&abort)?;
        }
        Ok(())
    }

    pub(super) fn get_range(&mut self, key: &str, offset: u64, size: u64) -> Result<Option<Bytes>> {
        let call = self.path.call("get", "GET", Some(key));
        self.requests.get_range(call, offset, size)
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<Object>> {
        let host = self.requests.host().to_owned();
        read_pages(&host, |token| {
            let page = text(&self.list_page(prefix, token)?);
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
            let is_truncated = xml::text(&page, "IsTruncated").as_deref() == Some("true");
            let next = if is_truncated {
                let next = xml::required(&page, "NextContinuationToken");
                Some(next.with_context(|| {
                    format!(
                        "{host} returned a truncated list of objects without a continuation token"
                    )
                })?)
            } else {
                None
            };
            Ok(Page { objects, next })
        })
    }

    fn list_page(&mut self, prefix: &str, token: &str) -> Result<Response> {
        let mut call = self.path.call("list", "GET", None);
        if !token.is_empty() {
            call.query.push(("continuation-token", token));
        }
        call.query.extend([("list-type", "2"), ("prefix", prefix)]);
        self.requests.expect(&call)
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<()> {
        let call = self.path.call("delete", "DELETE", Some(key));
        self.requests.send(&call).map(drop)
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
