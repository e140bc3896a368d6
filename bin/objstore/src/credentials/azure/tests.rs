//! The places of credentials, and the requests for tokens.

use std::fs;

use super::super::test_issuer::{Issuer, form, now, of};
use super::*;

const TOKEN: &str = r#"{"access_token":"token","expires_in":3599,"token_type":"Bearer"}"#;

fn find(variables: &[(&str, &str)]) -> Result<Source> {
    Source::find(&of(variables))
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    fields.iter().map(owned).collect()
}

#[test]
fn an_application_has_a_secret() {
    let issuer = Issuer::start(vec![TOKEN.to_owned()]);
    let authority = format!("{}/", issuer.url);
    let source = find(&[
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "s3c/ret"),
        ("AZURE_FEDERATED_TOKEN_FILE", "/none"),
        ("AZURE_AUTHORITY_HOST", &authority),
    ]);
    let source = source.unwrap();
    assert!(!format!("{source:?}").contains("s3c"));
    let token = source.fetch(now()).unwrap();
    assert_eq!(token.value.0, "token");
    assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T00:59:59Z");
    let request = issuer.requests.lock()[0].clone();
    assert!(
        request.starts_with("post /tenant-1/oauth2/v2.0/token http/1.1"),
        "{request}"
    );
    let expect = fields(&[
        ("grant_type", "client_credentials"),
        ("client_id", "client"),
        ("scope", "https://storage.azure.com/.default"),
        ("client_secret", "s3c/ret"),
    ]);
    assert_eq!(form(&request), expect);
}

#[test]
fn the_token_of_a_workload_identity_is_read_each_time() {
    let issuer = Issuer::start(vec![TOKEN.to_owned(), TOKEN.to_owned()]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let source = find(&[
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_FEDERATED_TOKEN_FILE", path.to_str().unwrap()),
        ("AZURE_AUTHORITY_HOST", &issuer.url),
    ]);
    let source = source.unwrap();
    let error = format!("{:#}", source.fetch(now()).unwrap_err());
    assert!(
        error.starts_with("AZURE_FEDERATED_TOKEN_FILE: read "),
        "{error}"
    );
    for assertion in ["first", "second"] {
        fs::write(&path, format!("{assertion}\n")).unwrap();
        assert_eq!(source.fetch(now()).unwrap().value.0, "token");
        let requests = issuer.requests.lock().clone();
        let expect = fields(&[
            ("grant_type", "client_credentials"),
            ("client_id", "client"),
            ("scope", "https://storage.azure.com/.default"),
            (
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            ),
            ("client_assertion", assertion),
        ]);
        assert_eq!(form(requests.last().unwrap()), expect);
    }
}

/// The metadata service returns a token that it has issued before, with the lifetime that it had
/// then.
#[test]
fn the_metadata_service_says_when_its_token_expires() {
    let issued =
        r#"{"access_token":"token","expires_in":"86399","expires_on":"1767229200","resource":"r"}"#;
    let issuer = Issuer::start(vec![issued.to_owned(), issued.to_owned()]);
    let host = ("AZURE_POD_IDENTITY_AUTHORITY_HOST", &*issuer.url);
    let sources = [find(&[host]), Source::of_user_assigned("a b", &of(&[host]))];
    let path = "get /metadata/identity/oauth2/token?api-version=2018-02-01\
                &resource=https%3a%2f%2fstorage.azure.com";
    for (source, target) in sources.into_iter().zip(["", "&client_id=a%20b"]) {
        let token = source.unwrap().fetch(now()).unwrap();
        assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T01:00:00Z");
        let request = issuer.requests.lock().last().unwrap().clone();
        assert!(
            request.starts_with(&format!("{path}{target} http/1.1")),
            "{request}"
        );
        assert!(request.contains("metadata: true"), "{request}");
    }
}

#[test]
fn app_service_has_an_endpoint_of_its_own() {
    let issued = r#"{"access_token":"token","expires_on":1767229200}"#;
    let issuer = Issuer::start(vec![issued.to_owned()]);
    let endpoint = format!("{}/msi/token", issuer.url);
    let source = find(&[
        ("IDENTITY_ENDPOINT", &endpoint),
        ("IDENTITY_HEADER", "h3ader"),
        ("AZURE_CLIENT_ID", "client"),
        ("MSI_ENDPOINT", "http://older.example"),
    ]);
    let source = source.unwrap();
    assert!(!format!("{source:?}").contains("h3ader"));
    let token = source.fetch(now()).unwrap();
    assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T01:00:00Z");
    let request = issuer.requests.lock()[0].clone();
    let line = "get /msi/token?api-version=2019-08-01&resource=https%3a%2f%2fstorage.azure.com\
                &client_id=client http/1.1";
    assert!(request.starts_with(line), "{request}");
    assert!(request.contains("x-identity-header: h3ader"), "{request}");
}

#[test]
fn without_variables_the_metadata_service_is_asked() {
    let source = format!("{:?}", find(&[]).unwrap());
    let url = "http://169.254.169.254/metadata/identity/oauth2/token";
    assert!(source.contains(url), "{source}");
}

/// The operator sees each place, not only the last one.
#[test]
fn missing_credentials_name_all_places() {
    let issuer = Issuer::start(vec!["fail".to_owned()]);
    let source = find(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &issuer.url)]).unwrap();
    let error = format!("{:#}", source.fetch(now()).unwrap_err());
    for place in [
        "no storage_account_key, storage_connection_string, client_id or user_assigned_id",
        "AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE",
        "the endpoint of managed identities has no token",
        "returned 500",
    ] {
        assert!(error.contains(place), "{place}: {error}");
    }
}

#[test]
fn what_is_not_supported_is_rejected_by_name() {
    let endpoint = ("IDENTITY_ENDPOINT", "http://localhost/token");
    let header = ("IDENTITY_HEADER", "h");
    let application = |tenant: &'static str, authority: &'static str| {
        [
            ("AZURE_TENANT_ID", tenant),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_CLIENT_SECRET", "s"),
            ("AZURE_AUTHORITY_HOST", authority),
        ]
    };
    for (variables, expect) in [
        (
            &[endpoint, header, ("IDENTITY_SERVER_THUMBPRINT", "t")][..],
            "the managed identities of Service Fabric are not supported",
        ),
        (
            &[("MSI_ENDPOINT", "http://localhost/token")],
            "MSI_ENDPOINT is set, but the managed identities of Cloud Shell",
        ),
        (
            &[endpoint, ("IMDS_ENDPOINT", "http://localhost")],
            "the managed identities of Azure Arc are not supported",
        ),
        (
            &application("a/../b", ""),
            "\"a/../b\" is neither the ID nor the domain of a tenant",
        ),
        (
            &application("tenant", "http://login.example"),
            "AZURE_AUTHORITY_HOST: \"http://login.example\" is neither https",
        ),
    ] {
        let error = format!("{:#}", find(variables).unwrap_err());
        assert!(error.contains(expect), "{expect}: {error}");
    }
}
