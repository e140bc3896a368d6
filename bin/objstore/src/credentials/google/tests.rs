//! Credentials of each place, and the requests for their tokens.

use std::fs;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::super::test_issuer::{Issuer, form, now, of};
use super::*;

/// A key that only these tests have, in PKCS #8.
const KEY: &str = "\
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDoPtQJ7aMSb711UDDqgKY5i9/qlQeSe+OfLQ4OJ+\n\
YrkBVtW4miNO8KQ+FNsFok7r5SAgodhKuqUVgRdJITN5cM/3HcZa1Mm399USXf1cb/Orp+oo9VJc7HTpMV51plWmNB\n\
TCfbIGs4gueqB7nelLn+zHl4dP622yQXVHAkxjEuKaOCswOi/pL/xGdgYZLgq62iDvQpZ/yVujDWQbzoLJ3nKcb1xK\n\
e5tQG4FTx08OTxQpTb1egttr20Ew/L91NbC5qF4BXF5VZlKJA+tm1rcpFja/SDSrrQgtAHVbciHWEBy61pLvWmFkee\n\
ajYdPZVsMlwFKEdWC8RripPi5zjUd77HAgMBAAECggEAad5yJFB6vOXJFNhIZC3fGG6F1Va4S/ND0QTl2lgf2Y3l5q\n\
MKu7Groh9Nbm/Mt/dJNPMPD2OyKYLJRbPA/xehOOCdU93ZwQlFdafvPvkhrKll6GJMOoFwoHRWIm8DSx6IDnUb2g0O\n\
M4Wg+2ZoOWnM27T0To/uqQZ+jlAEiw75zlN4j1rxiYFqyh6P2gC2RW0/RsmshsJHk0FLhCHntsvV/0Cq5WeGrPE0FA\n\
tkeUqlfCaOyqoAw5DIjTXPJb/+Y6ITLAboEpkwX3Zsok1iBc6nVSRJsrYrlBpLzONqfsY8uWjWVKYlA0Sa/cKg7wjH\n\
6DkxstygTwMJCK95syzPcQ+d+QKBgQD2fbbNSK9lzlLUBPv+m6a7t7QZghp1vpxgm4TvPtb4cUvJrAQ7X+RvOYzjRo\n\
pEgjVFc/pJsL/h+gdxSv23E7jDlqKUqW2pjAz9RJx/BuEjataaXbk/dngdBvMcVMORrsGkgW/UQmzwHFn2C04MAwQ6\n\
f8xGS/Oje1b+XXOPWL63pQKBgQDxNG16kSj7V6rIYs3e3tZxf+KRXg5uFp04RWKdlUlv7cswCrkHCPvqDPIr6eqF8t\n\
ocVROJdqK5+19lRDPEb7JpZ3r164TWZM1JXNnKCGTK0XxzrreEbryyM/gLoQi3fzUw0M/RNr7xMMxIhaMk8FjqtE5t\n\
4u5JISS7Ch8xFuPw+wKBgQCpd7Ew3mJI+luUDYE7gcRWl2yphPuwLEbTXNk+q9OcqDhVBYE7WShzF/w3Xg4+H8+EWs\n\
Kf23dxZDetusNJFbQYNP6+euY8hV+A2aVG6HHtqcy2AO4WJdtbCaYnuldjV+Umtx8triW7x6JKOWeFdqV3mtnVEu8F\n\
XQ1ogNOsoHUvSQKBgCqSVUxPuIr8AyGRBsLyU6j+qE996VAW37Lh1DD5+1ctAjK9gcCzHjtGA6wqggEYRtS/U05syP\n\
XIXyLxca2XBUdDQ1mKMwzgB7eOEsZsytVdOfj0+mD+ZoGRWJM83dv9MLcn87X6UqMhOL0IES5g2WC7aChO6D2yAtic\n\
RbsVTi/nAoGAIIyYSr/0AFaSKbsSMhOkYfADE3eTRCe88zzXYhVjSN68vYN4IjDqezJvCo6Mqd+2PoKB76RiwnPMB4\n\
R0XM1DyeZKngbftayH+vKiu4zqWDEpkG0oY8j8pIaGYfwRQNIuzJq+EeOaZpplYpXhFjhYyZWBe0aNNkI+Gb8YbJaF\n\
Kt4=";

const TOKEN: &str = r#"{"access_token":"token","expires_in":3599}"#;

fn pem() -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n")
}

fn service_account(token_uri: &str) -> String {
    json!({
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "kid-1",
        "private_key": pem(),
        "client_email": "varve@p.iam.gserviceaccount.com",
        "token_uri": token_uri,
    })
    .to_string()
}

fn find(configured: &str, variables: &[(&str, &str)]) -> Result<Source> {
    Source::find(&Secret(configured.to_owned()), &of(variables))
}

fn error_of(configured: &str, variables: &[(&str, &str)]) -> String {
    format!("{:#}", find(configured, variables).unwrap_err())
}

#[test]
fn a_service_account_signs_its_request_for_a_token() {
    let issuer = Issuer::start(vec![TOKEN.to_owned()]);
    let source = find(&service_account(&issuer.url), &[]).unwrap();
    let token = source.fetch(now()).unwrap();
    assert_eq!(token.value.0, "token");
    assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T00:59:59Z");

    let fields = form(&issuer.requests.lock()[0]);
    assert_eq!(
        fields[0].1,
        "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()
    );
    let (signed, signature) = fields[1].1.rsplit_once('.').unwrap();
    let key = BASE64.decode(KEY.replace('\n', "").as_bytes()).unwrap();
    let key = RsaKeyPair::from_pkcs8(&key).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key())
        .verify(
            signed.as_bytes(),
            &BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap(),
        )
        .unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let json = |text: &str| -> Value {
        serde_json::from_slice(&BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()).unwrap()
    };
    assert_eq!(
        json(header),
        json!({"alg": "RS256", "typ": "JWT", "kid": "kid-1"})
    );
    assert_eq!(
        json(claims),
        json!({
            "iss": "varve@p.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/devstorage.read_write",
            "aud": issuer.url,
            "iat": 1_767_225_600,
            "exp": 1_767_229_200,
        })
    );
    assert!(!format!("{source:?}").contains(&KEY[..40]));
}

/// Old files have the key alone, without its algorithm.
#[test]
fn a_key_may_be_pkcs_1() {
    let pkcs8 = BASE64.decode(KEY.replace('\n', "").as_bytes()).unwrap();
    let pkcs1 = BASE64.encode(&pkcs8[26..]);
    let credentials = service_account("https://sts.example")
        .replace(" PRIVATE", " RSA PRIVATE")
        .replace(&KEY.replace('\n', "\\n"), &pkcs1);
    assert!(credentials.contains(&pkcs1));
    find(&credentials, &[]).unwrap();
}

#[test]
fn credentials_are_looked_for_in_the_order_of_google() {
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("key.json");
    fs::write(&named, service_account("https://named.example/token")).unwrap();
    let named = ("GOOGLE_APPLICATION_CREDENTIALS", named.to_str().unwrap());
    let home = dir.path().join("home");
    let gcloud = home.join(".config/gcloud");
    fs::create_dir_all(&gcloud).unwrap();
    let user =
        r#"{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"r"}"#;
    fs::write(gcloud.join("application_default_credentials.json"), user).unwrap();
    let all = [named, ("HOME", home.to_str().unwrap())];

    let configured = service_account("https://configured.example/token");
    let found = format!("{:?}", find(&configured, &all).unwrap());
    assert!(found.contains("configured.example"), "{found}");
    let found = format!("{:?}", find("", &all).unwrap());
    assert!(found.contains("named.example"), "{found}");
    assert!(matches!(find("", &all[1..]).unwrap(), Source::User { .. }));
    let none = find("", &[("HOME", "/none")]).unwrap();
    assert!(matches!(&none, Source::Metadata { url, .. } if url == "http://169.254.169.254"));
}

#[test]
fn the_metadata_server_issues_tokens() {
    let issuer = Issuer::start(vec![TOKEN.to_owned()]);
    let host = issuer.url.strip_prefix("http://").unwrap();
    let source = find("", &[("GCE_METADATA_HOST", host)]).unwrap();
    assert_eq!(source.fetch(now()).unwrap().value.0, "token");
    let request = issuer.requests.lock()[0].clone();
    assert!(request.contains("metadata-flavor: google"), "{request}");
    let line = "get /computemetadata/v1/instance/service-accounts/default/token http/1.1";
    assert!(request.starts_with(line), "{request}");
}

/// The operator sees each place, not only the last one.
#[test]
fn missing_credentials_name_all_places() {
    let issuer = Issuer::start(vec!["fail".to_owned()]);
    let host = issuer.url.strip_prefix("http://").unwrap();
    let source = find("", &[("GCE_METADATA_HOST", host), ("HOME", "/none")]).unwrap();
    let error = format!("{:#}", source.fetch(now()).unwrap_err());
    for place in [
        "service_account is empty",
        "GOOGLE_APPLICATION_CREDENTIALS is not set",
        "\"/none/.config/gcloud/application_default_credentials.json\" does not exist",
        "the metadata server has no token",
        "returned 500",
    ] {
        assert!(error.contains(place), "{place}: {error}");
    }
}

#[test]
fn a_user_of_gcloud_has_a_refresh_token() {
    let issuer = Issuer::start(vec![TOKEN.to_owned()]);
    let source = Source::User {
        client_id: "c".to_owned(),
        client_secret: Secret("s".to_owned()),
        refresh_token: Secret("r/1".to_owned()),
        token_url: format!("{}/token", issuer.url),
    };
    assert_eq!(source.fetch(now()).unwrap().value.0, "token");
    let fields = form(&issuer.requests.lock()[0]);
    assert_eq!(fields[0].1, "refresh_token");
    assert_eq!(fields[3], ("refresh_token".to_owned(), "r/1".to_owned()));
}

fn external(issuer: &str, source: &Value, more: &Value) -> String {
    let mut file = json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{issuer}/sts"),
        "credential_source": source,
    });
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    file.to_string()
}

#[test]
fn the_token_of_another_provider_is_exchanged() {
    let issuer = Issuer::start(vec![
        r#"{"jwt":"subject"}"#.to_owned(),
        TOKEN.to_owned(),
        r#"{"accessToken":"of the account","expireTime":"2026-01-01T01:00:00Z"}"#.to_owned(),
    ]);
    let source = json!({
        "url": format!("{}/identity?audience=a", issuer.url),
        "headers": {"x-identity": "h"},
        "format": {"type": "json", "subject_token_field_name": "jwt"},
    });
    let impersonation =
        json!({"service_account_impersonation_url": format!("{}/sa:generate", issuer.url)});
    let source = find(&external(&issuer.url, &source, &impersonation), &[]).unwrap();
    let token = source.fetch(now()).unwrap();
    assert_eq!(token.value.0, "of the account");
    assert_eq!(token.expires.unwrap().to_string(), "2026-01-01T01:00:00Z");

    let requests = issuer.requests.lock().clone();
    assert!(requests[0].starts_with("get /identity?audience=a http/1.1"));
    assert!(requests[0].contains("x-identity: h"));
    let fields = form(&requests[1]);
    assert_eq!(
        fields[0].1,
        "urn:ietf:params:oauth:grant-type:token-exchange"
    );
    assert_eq!(fields[1].1, "//iam.googleapis.com/pools/p");
    assert_eq!(fields[4].1, "subject");
    assert!(requests[2].starts_with("post /sa:generate http/1.1"));
    assert!(requests[2].contains("authorization: bearer token"));
    assert!(requests[2].contains("devstorage.read_write"));
}

#[test]
fn the_token_of_a_file_is_read_each_time() {
    let issuer = Issuer::start(vec![TOKEN.to_owned(), TOKEN.to_owned()]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let file = json!({"file": path});
    let source = find(&external(&issuer.url, &file, &json!({})), &[]).unwrap();
    for subject in ["first", "second"] {
        fs::write(&path, format!("{subject}\n")).unwrap();
        source.fetch(now()).unwrap();
        let requests = issuer.requests.lock().clone();
        assert_eq!(form(requests.last().unwrap())[4].1, subject);
    }
}

#[test]
fn what_is_not_supported_is_rejected_by_name() {
    let https = "https://sts.example";
    let file = json!({"file": "f"});
    for (credentials, expect) in [
        ("{}".to_owned(), "missing field `type`"),
        (
            r#"{"type":"impersonated_service_account"}"#.to_owned(),
            "unknown variant `impersonated_service_account`",
        ),
        (
            service_account("http://example.com/token"),
            "token_uri: \"http://example.com/token\" is neither https",
        ),
        (
            service_account(https).replace("p.iam", "p.iam\",\"universe_domain\":\"u.example"),
            "universe_domain \"u.example.gserviceaccount.com\" is not supported",
        ),
        (
            service_account(https).replace("MII", "AAA"),
            "private_key: it is not a key of RSA",
        ),
        (
            service_account(https).replace("MII", "!!!"),
            "private_key: it is not PEM",
        ),
        (
            external(https, &json!({"environment_id": "aws1"}), &json!({})),
            "credential_source.environment_id of an external account is not supported",
        ),
        (
            external(https, &json!({"executable": {"command": "c"}}), &json!({})),
            "credential_source.executable of an external account is not supported",
        ),
        (
            external(https, &json!({"file": "f", "url": "http://u"}), &json!({})),
            "credential_source must have either file or url",
        ),
        (
            external(https, &file, &json!({"workforce_pool_user_project": "p"})),
            "workforce_pool_user_project of an external account is not supported",
        ),
        (
            external("http://example.com", &file, &json!({})),
            "token_url: \"http://example.com/sts\" is neither https",
        ),
    ] {
        let error = error_of(&credentials, &[]);
        assert!(error.starts_with("service_account: "), "{error}");
        assert!(error.contains(expect), "{expect}: {error}");
        assert!(!error.contains(&KEY[..40]), "{error}");
    }
    let error = error_of("", &[("GOOGLE_APPLICATION_CREDENTIALS", "/none")]);
    assert!(
        error.starts_with("GOOGLE_APPLICATION_CREDENTIALS: "),
        "{error}"
    );
}
