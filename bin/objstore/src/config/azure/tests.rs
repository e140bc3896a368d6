//! Configurations that are accepted, and those that are rejected by name.

use super::super::parts::RETRIES_DEFAULT;
use super::super::{BackendConfig, BucketConfig};
use super::*;
use crate::credentials::test_issuer::of;

const ACCOUNT: &str = "container: metrics, storage_account: acc";
/// The words `s3cret key` in Base64.
const KEY: &str = "czNjcmV0IGtleQ==";

fn parse(fields: &str, variables: &[(&str, &str)]) -> Result<AzureConfig, String> {
    let text = format!("{{type: AZURE, config: {{{fields}}}}}");
    match BucketConfig::parse(&text, Path::new(""), of(variables)) {
        Ok(BucketConfig {
            backend: BackendConfig::Azure(azure),
            ..
        }) => Ok(*azure),
        Ok(_) => unreachable!("the type is AZURE"),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn connect(connection_string: &str) -> Result<AzureConfig, String> {
    let field = format!("storage_connection_string: '{connection_string}'");
    parse(&format!("{ACCOUNT}, {field}"), &[])
}

fn check(fields: &str, expect: &str) {
    let error = parse(fields, &[]).unwrap_err();
    assert!(error.contains(expect), "{fields}: {error}");
    assert!(!error.contains("czNj"), "{error}");
}

#[test]
fn a_complete_example_of_thanos_is_accepted() {
    let config = parse(
        "az_tenant_id: '', client_id: '', client_secret: '', storage_account: acc, storage_account_key: '', \
         storage_connection_string: '', storage_create_container: false, container: metrics, endpoint: '', \
         user_assigned_id: '', max_retries: 0, reader_config: {max_retry_requests: 0}, pipeline_config: \
         {max_tries: 0, try_timeout: 0s, retry_delay: 0s, max_retry_delay: 0s}, http_config: \
         {idle_conn_timeout: 0s, response_header_timeout: 0s, insecure_skip_verify: false, \
         tls_handshake_timeout: 0s, expect_continue_timeout: 0s, max_idle_conns: 0, \
         max_idle_conns_per_host: 0, max_conns_per_host: 0, tls_config: {ca_file: '', cert_file: '', \
         key_file: '', server_name: '', insecure_skip_verify: false}, disable_compression: false}, \
         msi_resource: ''",
        &[],
    );
    let config = config.unwrap();
    assert_eq!(config.host, "acc.blob.core.windows.net");
    assert_eq!(config.server_path, "");
    assert_eq!(config.part_size, PART_SIZE_DEFAULT);
    assert_eq!(config.retries_max, RETRIES_DEFAULT);
    assert!(!config.is_insecure && !config.creates_container);
    assert!(matches!(
        config.credentials,
        AzureCredentials::Tokens(TokenSource::Azure(azure::Source::ManagedIdentity(_)))
    ));

    // As in Thanos, what the file does not say.
    let config = parse(ACCOUNT, &[]).unwrap();
    assert!(config.creates_container);
}

#[test]
fn retries_have_two_keys_and_a_bound() {
    for (fields, expect) in [
        ("max_retries: 3", 3),
        ("max_retries: 3, pipeline_config: {max_tries: 4}", 4),
        ("pipeline_config: {max_tries: 20}", 20),
    ] {
        let config = parse(&format!("{ACCOUNT}, {fields}"), &[]).unwrap();
        assert_eq!(config.retries_max, expect, "{fields}");
    }
    for fields in ["max_retries: 21", "pipeline_config: {max_tries: 21}"] {
        check(
            &format!("{ACCOUNT}, {fields}"),
            "max_retries 21 exceeds the maximum of 20",
        );
    }
}

#[test]
fn credentials_are_looked_for_in_the_order_of_thanos() {
    let kind = |fields: &str, variables: &[(&str, &str)]| {
        let config = parse(&format!("{ACCOUNT}, {fields}"), variables).unwrap();
        let printed = format!("{config:?}");
        assert!(
            !printed.contains("s3cret") && !printed.contains("czNj"),
            "{printed}"
        );
        match config.credentials {
            AzureCredentials::SharedKey(_) => "key".to_owned(),
            AzureCredentials::SharedAccessSignature(_) => "signature".to_owned(),
            AzureCredentials::Tokens(TokenSource::Azure(source)) => format!("{source:?}"),
            AzureCredentials::Tokens(_) => unreachable!("tokens are of Entra ID"),
        }
    };
    let of_env = [
        ("AZURE_TENANT_ID", "env-tenant"),
        ("AZURE_CLIENT_ID", "env-client"),
        ("AZURE_CLIENT_SECRET", "s3cret"),
    ];
    let application = "az_tenant_id: tenant, client_id: client, client_secret: s3cret";
    let key = format!("storage_account_key: '{KEY}'");
    assert_eq!(kind(&format!("{key}, {application}"), &of_env), "key");
    let source = kind(application, &of_env);
    let url = "https://login.microsoftonline.com/tenant/oauth2/v2.0/token";
    assert!(source.contains(url), "{source}");
    let source = kind("user_assigned_id: mine", &of_env);
    assert!(source.contains("&client_id=mine"), "{source}");
    assert!(kind("endpoint: ''", &of_env).contains("/env-tenant/"));
}

#[test]
fn a_connection_string_has_address_and_credentials() {
    let azurite = format!(
        "DefaultEndpointsProtocol=http;AccountName=dev;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/dev/;"
    );
    let config = connect(&azurite).unwrap();
    assert_eq!(config.host, "127.0.0.1:10000");
    assert_eq!(config.server_path, "/dev");
    assert!(config.is_insecure);
    assert!(matches!(config.credentials, AzureCredentials::SharedKey(_)));

    let config = connect(&format!(
        "AccountName=acc;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn"
    ));
    let config = config.unwrap();
    assert_eq!(config.host, "acc.blob.core.chinacloudapi.cn");
    assert!(!config.is_insecure);

    let config = connect(
        "BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=?sv=2022-11-02&sig=a%2Bb%3D",
    );
    let config = config.unwrap();
    assert_eq!(config.host, "acc.blob.core.windows.net");
    let AzureCredentials::SharedAccessSignature(signature) = config.credentials else {
        panic!("there is no key")
    };
    assert_eq!(signature.0, "sv=2022-11-02&sig=a%2Bb%3D");
}

#[test]
fn what_is_not_supported_is_rejected_by_name() {
    for (fields, expect) in [
        ("storage_account: acc", "container is missing"),
        ("container: metrics", "storage_account is missing"),
        (
            "container: c, storage_account: a, endpoint: 'https://e/'",
            "endpoint \"https://e/\" is not a host",
        ),
        (
            "container: c, storage_account: a, client_id: i",
            "az_tenant_id, client_id and client_secret must be set together",
        ),
        (
            "container: c, storage_account: a, client_secret: czNj",
            "az_tenant_id, client_id and client_secret must be set together",
        ),
        (
            "container: c, storage_account: a, storage_account_key: czNj, storage_connection_string: x",
            "storage_account_key and storage_connection_string exclude each other",
        ),
        (
            "container: c, storage_account: a, storage_account_key: czNj, user_assigned_id: u",
            "user_assigned_id excludes storage_account_key",
        ),
        (
            "container: c, storage_account: a, storage_account_key: czNj!",
            "the key of storage account \"a\" is not Base64",
        ),
        ("colour: red", "unknown key colour"),
        (
            "reader_config: {colour: red}",
            "reader_config: unknown key colour",
        ),
        (
            "pipeline_config: {colour: red}",
            "pipeline_config: unknown key colour",
        ),
        (
            "http_config: {insecure: true}",
            "http_config: unknown key insecure",
        ),
    ] {
        check(fields, expect);
    }
}

#[test]
fn an_invalid_connection_string_is_not_printed() {
    for (connection_string, expect) in [
        ("czNj", "expected NAME=VALUE;NAME=VALUE"),
        ("AccountKey=czNj", "AccountName or BlobEndpoint is missing"),
        (
            "AccountName=a",
            "AccountKey, or SharedAccessSignature, are missing",
        ),
        ("AccountName=a;AccountKey=czNj!", "is not Base64"),
        (
            "UseDevelopmentStorage=true",
            "UseDevelopmentStorage is not supported",
        ),
        (
            "BlobEndpoint=ftp://e;SharedAccessSignature=sig=czNj",
            "SharedAccessSignature: \"ftp://e\"",
        ),
        (
            "BlobEndpoint=http://e.example;SharedAccessSignature=sig=czNj",
            "\"http://e.example\" is neither https nor a loopback",
        ),
        (
            "BlobEndpoint=https://e/?sig=czNj;AccountName=a;AccountKey=czNj",
            "BlobEndpoint has a query or a user",
        ),
        (
            "BlobEndpoint=https://e;SharedAccessSignature=se=czNj",
            "is not an encoded query with the parameter sig",
        ),
        (
            "BlobEndpoint=https://e;SharedAccessSignature=sig=czNj c",
            "is not an encoded query with the parameter sig",
        ),
        (
            "BlobEndpoint=e:80;AccountName=a;AccountKey=czNjcmV0IGtleQ==",
            "BlobEndpoint \"e:80\" is not http://HOST:PORT/PATH",
        ),
    ] {
        let error = connect(connection_string).unwrap_err();
        assert!(
            error.starts_with("config: storage_connection_string: "),
            "{error}"
        );
        assert!(error.contains(expect), "{connection_string}: {error}");
        assert!(!error.contains("czNj"), "{error}");
    }
}
