//! The configuration of a bucket: the YAML of Thanos' `--objstore.config-file`.
//!
//! ```yaml
//! type: S3
//! config: {bucket: metrics, endpoint: s3.eu-west-1.amazonaws.com, access_key: …, secret_key: …}
//! prefix: ""
//! ```
//! Keys that have no effect here ([`WITHOUT_EFFECT`]) are accepted with any value. Keys that are
//! not supported ([`UNSUPPORTED`]) are accepted only with an empty value. So a complete example
//! from Thanos' documentation works unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_yaml_ng::Value;
use varve_client::{Access, HttpClientConfig, Secret, TlsSettings};
use varve_system::yaml::yaml_error;

use crate::credentials::{Credentials, Source};
use crate::limits::MIB;

/// Maximum size of the file in bytes.
const FILE_SIZE_MAX: u64 = MIB;
/// Allowed sizes of a part of a multipart upload, in bytes. S3 sets the minimum. The maximum bounds
/// the memory of a part.
const PART_SIZES: std::ops::RangeInclusive<u64> = 5 * MIB..=64 * MIB;
/// Default size of a part in bytes. Larger objects are sent in parts.
const PART_SIZE_DEFAULT: u64 = 16 * MIB;
/// Maximum of `max_retries`.
const RETRIES_MAX: u32 = 20;
/// Default of `max_retries`.
const RETRIES_DEFAULT: u32 = 6;

/// Types of Thanos that Varve does not have.
const OTHER_TYPES: [&str; 8] = [
    "GCS",
    "AZURE",
    "SWIFT",
    "COS",
    "ALIYUNOSS",
    "BOS",
    "OCI",
    "OBS",
];
/// Keys of S3 with no effect: uploads always carry a checksum, lists are always of version 2, and
/// nothing is traced.
const WITHOUT_EFFECT: [&str; 5] = [
    "disable_dualstack",
    "send_content_md5",
    "list_objects_version",
    "trace",
    "disable_multipart",
];
/// Keys of `http_config` with no effect.
const HTTP_WITHOUT_EFFECT: [&str; 8] = [
    "idle_conn_timeout",
    "response_header_timeout",
    "tls_handshake_timeout",
    "expect_continue_timeout",
    "max_idle_conns",
    "max_idle_conns_per_host",
    "max_conns_per_host",
    "disable_compression",
];
/// Keys of S3 that are not supported: they must be empty.
const UNSUPPORTED: [&str; 2] = ["signature_version2", "put_user_metadata"];

/// An S3 bucket or a directory.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    pub(super) backend: BackendConfig,
    /// Prefix of all keys: empty, or with a final slash.
    pub(super) prefix: String,
}

#[derive(Debug, Clone)]
pub(super) enum BackendConfig {
    Filesystem(PathBuf),
    S3(Box<S3Config>),
}

/// The address of an S3 bucket, its credentials and the settings of uploads.
#[derive(Debug, Clone)]
pub(super) struct S3Config {
    pub(super) bucket: String,
    /// Host and port.
    pub(super) endpoint: String,
    pub(super) is_insecure: bool,
    /// `true` if the name of the bucket is part of the host name, `false` if it begins the path.
    pub(super) is_virtual_hosted: bool,
    pub(super) region: String,
    pub(super) credentials: Source,
    pub(super) access: Access,
    /// Headers of each new object: how the server encrypts it.
    pub(super) encryption: Vec<(String, String)>,
    pub(super) part_size: u64,
    pub(super) retries_max: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesystemSection {
    directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct S3Section {
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

/// Timeouts and connection limits have no effect: the client has one connection and its own
/// timeout.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HttpSection {
    insecure_skip_verify: bool,
    tls_config: TlsSettings,
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

impl BucketConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or has an unknown type, an unsupported key or a missing one, which the
    /// message names.
    pub fn load(path: &Path) -> Result<Self> {
        let about = || format!("object storage configuration {path:?}");
        let size = path
            .metadata()
            .with_context(|| format!("read {}", about()))?
            .len();
        ensure!(
            size <= FILE_SIZE_MAX,
            "{}: {size} bytes exceed the maximum of {FILE_SIZE_MAX}",
            about()
        );
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", about()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder, |name| {
            std::env::var(name).unwrap_or_default()
        })
        .with_context(about)
    }

    /// Returns the bucket that an argument of a tool names. The argument is a URL
    /// `s3://bucket/prefix` (credentials, endpoint and region come from the environment), a
    /// configuration file, or a directory, which need not exist.
    ///
    /// # Errors
    /// If the configuration file is invalid, or the environment has no credentials.
    pub fn from_argument(argument: &str) -> Result<Self> {
        let path = Path::new(argument);
        match argument.strip_prefix("s3://") {
            Some(url) => Self::from_url(url, |name| std::env::var(name).unwrap_or_default()),
            None if path.is_file() => Self::load(path),
            None => Ok(Self {
                backend: BackendConfig::Filesystem(path.to_owned()),
                prefix: String::new(),
            }),
        }
    }

    fn from_url(url: &str, env: impl Fn(&str) -> String) -> Result<Self> {
        let (bucket, prefix) = url.split_once('/').unwrap_or((url, ""));
        let endpoint = env("AWS_ENDPOINT_URL");
        let section = S3Section {
            bucket: bucket.to_owned(),
            insecure: endpoint.starts_with("http://"),
            endpoint: match endpoint
                .split_once("://")
                .map_or(&*endpoint, |(_, host)| host)
                .trim_end_matches('/')
            {
                "" => "s3.amazonaws.com".to_owned(),
                host => host.to_owned(),
            },
            region: env("AWS_REGION"),
            ..S3Section::default()
        };
        let backend = section
            .check(Path::new(""), env)
            .with_context(|| format!("s3://{url}"))?;
        Ok(Self {
            backend: BackendConfig::S3(Box::new(backend)),
            prefix: with_slash(prefix),
        })
    }

    fn parse(text: &str, folder: &Path, env: impl Fn(&str) -> String) -> Result<Self> {
        let File {
            kind,
            config,
            prefix,
        } = serde_yaml_ng::from_str(text).map_err(yaml_error)?;
        let backend = match kind.to_uppercase().as_str() {
            "FILESYSTEM" => {
                let FilesystemSection { directory } = serde_yaml_ng::from_value(config)
                    .map_err(yaml_error)
                    .context("config")?;
                BackendConfig::Filesystem(directory)
            }
            "S3" => {
                let section: S3Section = serde_yaml_ng::from_value(config)
                    .map_err(yaml_error)
                    .context("config")?;
                BackendConfig::S3(Box::new(section.check(folder, env).context("config")?))
            }
            "GCS" => bail!(
                "type GCS is not supported; use type S3 with endpoint storage.googleapis.com and HMAC keys"
            ),
            other if OTHER_TYPES.contains(&other) => {
                bail!("type {other} is not supported; use S3 or FILESYSTEM")
            }
            _ => bail!("unknown type {kind:?}; use S3 or FILESYSTEM"),
        };
        Ok(Self {
            backend,
            prefix: with_slash(&prefix),
        })
    }
}

impl S3Section {
    fn check(self, folder: &Path, env: impl Fn(&str) -> String) -> Result<S3Config> {
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

        let mut tls_config = self.http_config.tls_config;
        tls_config.resolve_paths(folder);
        let access = Access::new(&HttpClientConfig {
            tls_config,
            ..HttpClientConfig::default()
        })
        .context("http_config")?
        .trusting(None, self.http_config.insecure_skip_verify);

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
            return Ok(Source::Keys(Credentials::new(
                self.access_key.clone(),
                self.secret_key.clone(),
                self.session_token.clone(),
            )));
        }
        let access_key = env("AWS_ACCESS_KEY_ID");
        let secret_key = Secret(env("AWS_SECRET_ACCESS_KEY"));
        if !access_key.is_empty() && !secret_key.0.is_empty() {
            let session_token = Secret(env("AWS_SESSION_TOKEN"));
            let keys = Credentials::new(access_key, secret_key, session_token);
            return Ok(Source::Keys(keys));
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
        for (key, value) in &self.rest {
            if UNSUPPORTED.contains(&key.as_str()) {
                ensure!(is_empty(value), "{key} is not supported");
            } else {
                ensure!(WITHOUT_EFFECT.contains(&key.as_str()), "unknown key {key}");
            }
        }
        for key in self.http_config.rest.keys() {
            ensure!(
                HTTP_WITHOUT_EFFECT.contains(&key.as_str()),
                "http_config: unknown key {key}"
            );
        }
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

/// Returns the size of a part; 0 stands for the default.
fn check_part_size(configured: u64) -> Result<u64> {
    let part_size = if configured == 0 {
        PART_SIZE_DEFAULT
    } else {
        configured
    };
    ensure!(
        PART_SIZES.contains(&part_size),
        "part_size {part_size} is not between {} and {} bytes",
        PART_SIZES.start(),
        PART_SIZES.end()
    );
    Ok(part_size)
}

/// Returns the maximum number of retries; 0 stands for the default.
fn check_retries(configured: u32) -> Result<u32> {
    let retries_max = if configured == 0 {
        RETRIES_DEFAULT
    } else {
        configured
    };
    ensure!(
        retries_max <= RETRIES_MAX,
        "max_retries {retries_max} exceeds the maximum of {RETRIES_MAX}"
    );
    Ok(retries_max)
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

/// Returns `true` if Thanos treats a value as not set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Mapping(fields) => fields.is_empty(),
        _ => false,
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

fn with_slash(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S3: &str = "bucket: b, access_key: a, secret_key: s3cret";

    fn parse(text: &str) -> Result<BucketConfig, String> {
        let env = |name: &str| {
            if name == "AWS_SESSION_TOKEN" {
                "t".to_owned()
            } else {
                String::new()
            }
        };
        BucketConfig::parse(text, Path::new(""), env).map_err(|error| format!("{error:#}"))
    }

    fn check(text: &str, expect: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expect), "{text}: {error}");
    }

    fn s3(fields: &str) -> S3Config {
        match parse(&format!(
            "type: s3\nconfig: {{{S3}, {fields}}}\nprefix: /a/b/"
        ))
        .unwrap()
        {
            BucketConfig {
                backend: BackendConfig::S3(config),
                prefix,
            } if prefix == "a/b/" => *config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bucket_is_found_by_path_or_host_and_region() {
        for (fields, is_virtual_hosted, region) in [
            ("endpoint: 'localhost:9000'", false, "us-east-1"),
            ("endpoint: s3.eu-west-1.amazonaws.com", true, "eu-west-1"),
            (
                "endpoint: s3-eu-west-1.amazonaws.com, bucket_lookup_type: path",
                false,
                "eu-west-1",
            ),
            (
                "endpoint: s3.dualstack.us-west-2.amazonaws.com",
                true,
                "us-west-2",
            ),
            ("endpoint: s3.amazonaws.com", true, "us-east-1"),
            (
                "endpoint: s3-fips.us-gov-west-1.amazonaws.com",
                true,
                "us-gov-west-1",
            ),
            (
                "endpoint: storage.googleapis.com, region: auto",
                true,
                "auto",
            ),
            (
                "endpoint: minio, bucket_lookup_type: virtual-hosted, region: x",
                true,
                "x",
            ),
        ] {
            let config = s3(fields);
            assert_eq!(
                (config.is_virtual_hosted, &*config.region),
                (is_virtual_hosted, region),
                "{fields}"
            );
            assert_eq!(
                (config.part_size, config.retries_max),
                (PART_SIZE_DEFAULT, RETRIES_DEFAULT)
            );
            let Source::Keys(keys) = &config.credentials else {
                panic!("{fields}")
            };
            assert!(
                keys.session_token.0.is_empty(),
                "the environment counts only without keys in the file"
            );
        }
    }

    #[test]
    fn part_size_and_max_retries_have_bounds() {
        for part_size in [5 * MIB, 64 * MIB] {
            assert_eq!(
                s3(&format!("endpoint: e, part_size: {part_size}")).part_size,
                part_size
            );
        }
        assert_eq!(s3("endpoint: e, max_retries: 20").retries_max, 20);
        for (field, expect) in [
            (
                "part_size: 5242879",
                "part_size 5242879 is not between 5242880 and 67108864 bytes",
            ),
            (
                "part_size: 67108865",
                "part_size 67108865 is not between 5242880 and 67108864 bytes",
            ),
            (
                "max_retries: 21",
                "max_retries 21 exceeds the maximum of 20",
            ),
        ] {
            check(
                &format!("type: S3\nconfig: {{{S3}, endpoint: e, {field}}}"),
                expect,
            );
        }
    }

    #[test]
    fn a_complete_example_of_thanos_is_accepted() {
        s3(
            "endpoint: e, region: '', disable_dualstack: false, aws_sdk_auth: false, insecure: false, \
            signature_version2: false, session_token: '', put_user_metadata: {}, http_config: {idle_conn_timeout: \
            1m30s, response_header_timeout: 2m, insecure_skip_verify: false, max_idle_conns: 100, tls_config: \
            {ca_file: '', cert_file: '', key_file: '', server_name: '', insecure_skip_verify: false}, \
            disable_compression: false}, trace: {enable: false}, list_objects_version: '', bucket_lookup_type: auto, \
            send_content_md5: true, disable_multipart: false, part_size: 67108864, sse_config: {type: '', \
            kms_key_id: '', kms_encryption_context: {}, encryption_key: ''}, sts_endpoint: '', max_retries: 0",
        );
    }

    #[test]
    fn what_is_not_supported_is_rejected_by_name() {
        for kind in OTHER_TYPES {
            check(
                &format!("type: {kind}"),
                &format!("type {kind} is not supported"),
            );
        }
        check("type: TAPE", "unknown type \"TAPE\"");
        check(
            "type: FILESYSTEM\nconfig: {directory: a, mode: b}",
            "unknown field `mode`",
        );
        let check_s3 =
            |fields: &str, expect: &str| check(&format!("type: S3\nconfig: {{{fields}}}"), expect);
        check_s3(
            "bucket: b, endpoint: e",
            "access_key and secret_key are missing",
        );
        check_s3(S3, "endpoint is missing");
        check_s3(
            &format!("{S3}, endpoint: 'http://e'"),
            "endpoint \"http://e\" is not a host",
        );
        check_s3(
            &format!("{S3}, endpoint: e, signature_version2: true"),
            "signature_version2 is not supported",
        );
        check_s3(
            &format!("{S3}, endpoint: e, colour: red"),
            "unknown key colour",
        );
        check_s3(
            &format!("{S3}, endpoint: e, http_config: {{insecure: true}}"),
            "http_config: unknown key insecure",
        );
        check_s3(
            &format!("{S3}, endpoint: e, sse_config: {{type: SSE-C}}"),
            "type \"SSE-C\" is not SSE-S3 or SSE-KMS",
        );
    }

    #[test]
    fn a_url_takes_the_rest_from_the_environment() {
        let env = |name: &str| match name {
            "AWS_ENDPOINT_URL" => "http://127.0.0.1:9000/".to_owned(),
            "AWS_REGION" => "eu".to_owned(),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => "key".to_owned(),
            _ => String::new(),
        };
        let BucketConfig {
            backend: BackendConfig::S3(s3),
            prefix,
        } = BucketConfig::from_url("b/c/d", env).unwrap()
        else {
            panic!("an URL names a bucket of S3")
        };
        assert_eq!(
            (&*s3.bucket, &*prefix, &*s3.endpoint),
            ("b", "c/d/", "127.0.0.1:9000")
        );
        assert!(s3.is_insecure && !s3.is_virtual_hosted && s3.region == "eu");
        assert!(matches!(&s3.credentials, Source::Keys(keys) if keys.access_key == "key"));
        let without_keys = |name: &str| match name {
            "AWS_ENDPOINT_URL" => "http://127.0.0.1:9000/".to_owned(),
            _ => String::new(),
        };
        let error = BucketConfig::from_url("b", without_keys).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("s3://b: access_key"),
            "{error:#}"
        );
    }

    #[test]
    fn without_keys_a_role_gives_credentials() {
        let source = |config: &str, variables: &[&str]| {
            let env = |name: &str| {
                let is_set = variables.contains(&name);
                if is_set {
                    "http://localhost/x".to_owned()
                } else {
                    String::new()
                }
            };
            let text = format!("{{type: S3, config: {{bucket: b, {config}}}}}");
            match BucketConfig::parse(&text, Path::new(""), env) {
                Ok(BucketConfig {
                    backend: BackendConfig::S3(s3),
                    ..
                }) => match s3.credentials {
                    Source::Keys(_) => "keys".to_owned(),
                    Source::WebIdentity { sts, .. } => sts,
                    Source::Container { .. } => "container".to_owned(),
                    Source::Instance(url) => url,
                },
                Ok(_) => unreachable!("the type is S3"),
                Err(error) => format!("{error:#}"),
            }
        };
        let aws = "endpoint: s3.eu-west-1.amazonaws.com";
        let minio = "endpoint: 'minio:9000'";
        let web = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"];
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let container = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        assert_eq!(source(aws, &web), "https://sts.eu-west-1.amazonaws.com");
        let with_sts = format!("{aws}, sts_endpoint: 'https://sts.example'");
        assert_eq!(source(&with_sts, &web), "https://sts.example");
        assert_eq!(source(aws, &[web[0], web[1], keys[0], keys[1]]), "keys");
        assert_eq!(source(minio, &[container]), "container");
        assert_eq!(source(aws, &[]), "http://169.254.169.254");
        let forced = format!("{minio}, aws_sdk_auth: true");
        assert_eq!(source(&forced, &[]), "http://169.254.169.254");
        let missing = source(minio, &[]);
        assert!(
            missing.contains("access_key and secret_key are missing"),
            "{missing}"
        );
        let both = source(&format!("{aws}, aws_sdk_auth: true, access_key: a"), &[]);
        assert!(both.contains("aws_sdk_auth excludes"), "{both}");
        let half = source(&format!("{aws}, access_key: a"), &keys);
        assert!(half.contains("must be set together"), "{half}");
        let token = source(&format!("{aws}, session_token: t"), &keys);
        assert!(token.contains("must be set together"), "{token}");
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", s3("endpoint: e")).contains("s3cret"));
    }
}
