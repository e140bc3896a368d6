//! Configurations that are accepted, and those that are rejected by name.

use super::*;
use crate::credentials::aws::Source;
use crate::credentials::test_issuer::of;
use parts::{PART_SIZE_DEFAULT, RETRIES_DEFAULT};

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
fn a_complete_example_of_gcs_is_accepted() {
    let parse = |fields: &str, variables: &[(&str, &str)]| {
        let text = format!("{{type: GCS, config: {{bucket: b, {fields}}}}}");
        match BucketConfig::parse(&text, Path::new(""), of(variables)) {
            Ok(BucketConfig {
                backend: BackendConfig::Gcs(gcs),
                ..
            }) => Ok(*gcs),
            Ok(_) => unreachable!("the type is GCS"),
            Err(error) => Err(format!("{error:#}")),
        }
    };
    // The example of Thanos' documentation.
    let gcs = parse(
        "service_account: '', use_grpc: false, grpc_conn_pool_size: 0, http_config: {idle_conn_timeout: 1m30s, \
         response_header_timeout: 2m, insecure_skip_verify: false, tls_handshake_timeout: 10s, \
         expect_continue_timeout: 1s, max_idle_conns: 100, max_idle_conns_per_host: 100, max_conns_per_host: 0, \
         tls_config: {ca_file: '', cert_file: '', key_file: '', server_name: '', insecure_skip_verify: false}, \
         disable_compression: false}, chunk_size_bytes: 0, max_retries: 0",
        &[],
    );
    let gcs = gcs.unwrap();
    assert_eq!(
        (&*gcs.host, gcs.is_insecure, gcs.part_size, gcs.retries_max),
        (
            "storage.googleapis.com",
            false,
            PART_SIZE_DEFAULT,
            RETRIES_DEFAULT
        )
    );
    let gcs = parse("chunk_size_bytes: 262144, max_retries: 1", &[]).unwrap();
    assert_eq!((gcs.part_size, gcs.retries_max), (5 * MIB, 0));
    let emulator = [("STORAGE_EMULATOR_HOST", "http://localhost:4443/")];
    let gcs = parse("chunk_size_bytes: 99999999999", &emulator).unwrap();
    assert_eq!((gcs.part_size, &*gcs.host), (64 * MIB, "localhost:4443"));
    assert!(gcs.is_insecure && gcs.credentials.is_none());
    for (fields, expect) in [
        (
            "max_retries: 21",
            "max_retries 21 exceeds the maximum of 20",
        ),
        ("no_auth: true", "unknown key no_auth"),
        ("endpoint: e", "unknown key endpoint"),
        (
            "http_config: {insecure: true}",
            "http_config: unknown key insecure",
        ),
        ("service_account: '{}'", "service_account: "),
    ] {
        let error = parse(fields, &[]).unwrap_err();
        assert!(error.contains(expect), "{fields}: {error}");
    }
    check("type: GCS\nconfig: {use_grpc: true}", "bucket is missing");
}

#[test]
fn secrets_are_not_printed() {
    assert!(!format!("{:?}", s3("endpoint: e")).contains("s3cret"));
}
