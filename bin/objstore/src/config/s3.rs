//! The section of a bucket of S3.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::{Access, Secret};

use super::http::{HttpSection, check_keys};
use super::parts::{check_part_size, check_retries};
use crate::credentials::Credentials;
use crate::credentials::aws::Source;

/// Keys with no effect: uploads always carry a checksum, lists are always of version 2, and
/// nothing is traced.
const WITHOUT_EFFECT: [&str; 5] = [
    "disable_dualstack",
    "send_content_md5",
    "list_objects_version",
    "trace",
    "disable_multipart",
];
/// Keys that are not supported: they must be empty.
const UNSUPPORTED: [&str; 2] = ["signature_version2", "put_user_metadata"];

/// The address of an S3 bucket, its credentials and the settings of uploads.
#[derive(Debug, Clone)]
pub(crate) struct S3Config {
    pub(crate) bucket: String,
    /// Host and port.
    pub(crate) endpoint: String,
    pub(crate) is_insecure: bool,
    /// `true` if the name of the bucket is part of the host name, `false` if it begins the path.
    pub(crate) is_virtual_hosted: bool,
    pub(crate) region: String,
    pub(crate) credentials: Source,
    pub(crate) access: Access,
    /// Headers of each new object: how the server encrypts it.
    pub(crate) encryption: Vec<(String, String)>,
    pub(crate) part_size: u64,
    pub(crate) retries_max: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct S3Section {
    bucket: String,
    endpoint: String,
    region: String,
    access_key: String,
    secret_key: Secret,
    session_token: Secret,
    /// `true`: only credentials of a role.
    aws_sdk_auth: bool,
    sts_endpoint: String,
    insecure: bool,
    bucket_lookup_type: String,
    part_size: u64,
    max_retries: u32,
    http_config: HttpSection,
    sse_config: SseSection,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SseSection {
    #[serde(rename = "type")]
    kind: String,
    kms_key_id: String,
    kms_encryption_context: BTreeMap<String, String>,
    encryption_key: String,
}

impl S3Section {
    /// Returns the section for a bucket of the endpoint, or of AWS without one.
    pub(super) fn of_url(bucket: &str, endpoint: &str, region: String) -> Self {
        let host = endpoint
            .split_once("://")
            .map_or(endpoint, |(_, host)| host)
            .trim_end_matches('/');
        Self {
            bucket: bucket.to_owned(),
            insecure: endpoint.starts_with("http://"),
            endpoint: match host {
                "" => "s3.amazonaws.com".to_owned(),
                host => host.to_owned(),
            },
            region,
            ..Self::default()
        }
    }

    pub(super) fn check(self, folder: &Path, env: impl Fn(&str) -> String) -> Result<S3Config> {
        self.check_keys()?;
        let is_virtual_hosted = self.is_virtual_hosted()?;
        let region = if self.region.is_empty() {
            endpoint_region(&self.endpoint).to_owned()
        } else {
            self.region.clone()
        };
        let credentials = self.credentials(&region, &env)?;
        let part_size = check_part_size(self.part_size)?;
        let retries_max = check_retries(self.max_retries)?;

        let access = self.http_config.access(folder)?;

        Ok(S3Config {
            region,
            bucket: self.bucket,
            endpoint: self.endpoint,
            is_insecure: self.insecure,
            is_virtual_hosted,
            credentials,
            access,
            encryption: self.sse_config.headers().context("sse_config")?,
            part_size,
            retries_max,
        })
    }

    /// Returns where credentials come from: the keys here, those of the environment, or a role. The
    /// role of an instance is used only for buckets of AWS, or if the configuration says so.
    fn credentials(&self, region: &str, env: &impl Fn(&str) -> String) -> Result<Source> {
        let has_keys = !self.access_key.is_empty()
            || !self.secret_key.0.is_empty()
            || !self.session_token.0.is_empty();
        if self.aws_sdk_auth {
            ensure!(!has_keys, "aws_sdk_auth excludes access_key and secret_key");
        } else if has_keys {
            ensure!(
                !self.access_key.is_empty() && !self.secret_key.0.is_empty(),
                "access_key and secret_key must be set together"
            );
            return Ok(Source::Keys(Credentials {
                access_key: self.access_key.clone(),
                secret_key: self.secret_key.clone(),
                session_token: self.session_token.clone(),
            }));
        }
        let access_key = env("AWS_ACCESS_KEY_ID");
        let secret_key = Secret(env("AWS_SECRET_ACCESS_KEY"));
        if !access_key.is_empty() && !secret_key.0.is_empty() {
            return Ok(Source::Keys(Credentials {
                access_key,
                secret_key,
                session_token: Secret(env("AWS_SESSION_TOKEN")),
            }));
        }
        if let Some(role) = Source::of_role(env, &self.sts_endpoint, region)? {
            return Ok(role);
        }
        let host = self.endpoint.split(':').next().unwrap_or_default();
        let is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        let instance = if is_aws || self.aws_sdk_auth {
            Source::of_instance(env)
        } else {
            None
        };
        instance.context(
            "access_key and secret_key are missing; set them, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    }

    /// Checks that all keys are known and the required ones are set.
    fn check_keys(&self) -> Result<()> {
        check_keys(&self.rest, &WITHOUT_EFFECT, &UNSUPPORTED)?;
        self.http_config.check_keys()?;
        ensure!(!self.bucket.is_empty(), "bucket is missing");
        ensure!(!self.endpoint.is_empty(), "endpoint is missing");
        ensure!(
            !self.endpoint.contains('/'),
            "endpoint {:?} is not a host with an optional port",
            self.endpoint
        );
        Ok(())
    }

    /// Returns `true` if the name of the bucket is part of the host name.
    fn is_virtual_hosted(&self) -> Result<bool> {
        match self.bucket_lookup_type.as_str() {
            // A bucket name with a dot does not match the wildcard certificate of the provider.
            "" | "auto" => {
                let host = self.endpoint.split(':').next().unwrap_or_default();
                let hosts = ["amazonaws.com", "googleapis.com", "aliyuncs.com"];
                Ok(hosts.iter().any(|suffix| host.ends_with(suffix))
                    && (self.insecure || !self.bucket.contains('.')))
            }
            "virtual-hosted" => Ok(true),
            "path" => Ok(false),
            other => bail!("bucket_lookup_type {other:?} is not auto, path or virtual-hosted"),
        }
    }
}

impl SseSection {
    fn headers(&self) -> Result<Vec<(String, String)>> {
        let header = |name: &str, value: &str| {
            (
                format!("x-amz-server-side-encryption{name}"),
                value.to_owned(),
            )
        };
        ensure!(
            self.encryption_key.is_empty(),
            "encryption_key is not supported"
        );
        ensure!(
            self.kms_encryption_context.is_empty(),
            "kms_encryption_context is not supported"
        );
        match self.kind.as_str() {
            "" => Ok(Vec::new()),
            "SSE-S3" => Ok(vec![header("", "AES256")]),
            "SSE-KMS" => Ok(vec![
                header("", "aws:kms"),
                header("-aws-kms-key-id", &self.kms_key_id),
            ]),
            other => bail!("type {other:?} is not SSE-S3 or SSE-KMS"),
        }
    }
}

/// Returns the region in the host name of an AWS endpoint, or the default region.
fn endpoint_region(endpoint: &str) -> &str {
    let host = endpoint.split(':').next().unwrap_or_default();
    let name = host
        .strip_suffix(".amazonaws.com")
        .or_else(|| host.strip_suffix(".amazonaws.com.cn"));
    let rest = name.and_then(|name| {
        name.strip_prefix("s3-fips")
            .or_else(|| name.strip_prefix("s3"))
    });
    let region = rest.map(|rest| {
        rest.trim_start_matches(".dualstack")
            .trim_start_matches(['.', '-'])
    });
    region
        .filter(|region| !region.is_empty())
        .unwrap_or("us-east-1")
}
