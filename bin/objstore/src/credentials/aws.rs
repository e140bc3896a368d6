//! Credentials of S3: keys of the configuration, or temporary ones of a role.
//!
//! The sources are those of the SDKs of AWS, in their order: a web identity (a service account of
//! Kubernetes), the endpoint of a container (ECS, EKS Pod Identity), and the metadata service of an
//! instance (EC2, version 2). Temporary credentials are renewed before they expire.
//!
//! Sources: "AWS SDKs and Tools Reference Guide", chapter "Standardized credential providers", and
//! "AssumeRoleWithWebIdentity" in the reference of AWS STS.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use varve_client::{Response, Secret, escape};
use varve_system::machine::files::read_text;

use super::issuer::{SIZE_MAX, check_confidential, request};
use super::renewal::{Cached, Expiring};
use crate::xml;

/// Lifetime in seconds of the token with which one set of credentials is read from the metadata
/// service.
const METADATA_TOKEN_SECONDS: &str = "60";
/// Hosts that a container's endpoint may have without TLS, besides the loopback interface: those of
/// ECS and of EKS Pod Identity.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// The keys of an account or of a session.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: Secret,
    /// The token of temporary credentials, or empty.
    pub(crate) session_token: Secret,
}

/// Where credentials come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The configuration or the environment.
    Keys(Credentials),
    /// The token of a service account, which STS exchanges.
    WebIdentity {
        token_file: PathBuf,
        role: String,
        session: String,
        /// The URL of STS.
        sts: String,
    },
    /// A URL of the container, and the token that it expects, if any.
    Container {
        url: String,
        token: Secret,
        token_file: PathBuf,
    },
    /// The metadata service, by its URL.
    Instance(String),
}

/// A source, and its credentials until they expire.
#[derive(Debug)]
pub(crate) struct CachedCredentials {
    source: Source,
    cached: Cached<Credentials>,
}

/// The response of a container's endpoint and of the metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IssuedCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl Source {
    /// Returns the source of a role that the environment names, if any. `sts` is the endpoint of STS
    /// in the configuration, or empty.
    pub(crate) fn of_role(
        env: &impl Fn(&str) -> String,
        sts: &str,
        region: &str,
    ) -> Result<Option<Self>> {
        let token_file = env("AWS_WEB_IDENTITY_TOKEN_FILE");
        let role = env("AWS_ROLE_ARN");
        if !token_file.is_empty() && !role.is_empty() {
            let session = match env("AWS_ROLE_SESSION_NAME") {
                name if name.is_empty() => "varve".to_owned(),
                name => name,
            };
            let default = format!("https://sts.{region}.{}", domain(region));
            let from_env = env("AWS_ENDPOINT_URL_STS");
            let sts = [sts, &from_env, &default]
                .into_iter()
                .find(|url| !url.is_empty())
                .unwrap_or_default();
            return Ok(Some(Self::WebIdentity {
                token_file: token_file.into(),
                role,
                session,
                sts: sts.to_owned(),
            }));
        }

        let relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let url = if relative.is_empty() {
            env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        } else {
            format!("http://{}{relative}", CONTAINER_HOSTS[0])
        };
        if url.is_empty() {
            return Ok(None);
        }
        check_confidential(&url, &CONTAINER_HOSTS).context("AWS_CONTAINER_CREDENTIALS_FULL_URI")?;
        Ok(Some(Self::Container {
            url,
            token: Secret(env("AWS_CONTAINER_AUTHORIZATION_TOKEN")),
            token_file: env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").into(),
        }))
    }

    /// Returns the metadata service of the instance, unless the environment disables it.
    pub(crate) fn of_instance(env: &impl Fn(&str) -> String) -> Option<Self> {
        if env("AWS_EC2_METADATA_DISABLED").eq_ignore_ascii_case("true") {
            return None;
        }
        let url = match env("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            url if url.is_empty() => "http://169.254.169.254".to_owned(),
            url => url.trim_end_matches('/').to_owned(),
        };
        Some(Self::Instance(url))
    }

    fn fetch(&self) -> Result<Expiring<Credentials>> {
        match self {
            Self::Keys(credentials) => Ok(Expiring {
                value: credentials.clone(),
                expires: None,
            }),
            Self::WebIdentity {
                token_file,
                role,
                session,
                sts,
            } => {
                let token = read_text(token_file, SIZE_MAX as u64)?;
                let form = format!(
                    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
                    escape(role),
                    escape(session),
                    escape(token.trim())
                );
                exchange(sts, &form).with_context(|| format!("web identity of role {role}"))
            }
            Self::Container {
                url,
                token,
                token_file,
            } => {
                // The file is read each time: its token expires.
                let token = if token_file.as_os_str().is_empty() {
                    token.0.clone()
                } else {
                    read_text(token_file, SIZE_MAX as u64)?.trim().to_owned()
                };
                let headers: &[(&str, &str)] = if token.is_empty() {
                    &[]
                } else {
                    &[("authorization", &token)]
                };
                let response = request("GET", url, headers, Bytes::new())?;
                parse(&response).context("credentials of the container")
            }
            Self::Instance(url) => fetch_from_instance(url).context("credentials of the instance"),
        }
    }
}

impl CachedCredentials {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            cached: Cached::new(),
        }
    }

    /// Returns credentials that are valid now.
    ///
    /// # Errors
    /// If there are none and the source has none.
    pub(crate) fn get(&mut self, now: Timestamp) -> Result<&Credentials> {
        self.cached.get(now, || self.source.fetch())
    }

    /// Forgets temporary credentials. Returns `false` if there are none.
    pub(crate) fn forget(&mut self) -> bool {
        self.cached.forget()
    }
}

/// Exchanges the token of a web identity for credentials.
fn exchange(sts: &str, form: &str) -> Result<Expiring<Credentials>> {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let response = request("POST", sts, &headers, form.to_owned().into())?;
    let body = String::from_utf8_lossy(&response.body);
    let expires = xml::required(&body, "Expiration")?;
    Ok(Expiring {
        value: Credentials {
            access_key: xml::required(&body, "AccessKeyId")?,
            secret_key: Secret(xml::required(&body, "SecretAccessKey")?),
            session_token: Secret(xml::required(&body, "SessionToken")?),
        },
        expires: Some(expires.parse().context("Expiration")?),
    })
}

/// Requests the role of the instance and its credentials from the metadata service.
fn fetch_from_instance(url: &str) -> Result<Expiring<Credentials>> {
    let ttl = [(
        "x-aws-ec2-metadata-token-ttl-seconds",
        METADATA_TOKEN_SECONDS,
    )];
    let response = request(
        "PUT",
        &format!("{url}/latest/api/token"),
        &ttl,
        Bytes::new(),
    )?;
    let token = response.text();
    let headers = [("x-aws-ec2-metadata-token", &*token)];
    let roles = format!("{url}/latest/meta-data/iam/security-credentials/");
    let response = request("GET", &roles, &headers, Bytes::new())?;
    let role = response.text();
    let role = role.lines().next().unwrap_or_default();
    ensure!(!role.is_empty(), "the instance has no role");
    let url = format!("{roles}{}", escape(role));
    parse(&request("GET", &url, &headers, Bytes::new())?)
}

fn parse(response: &Response) -> Result<Expiring<Credentials>> {
    let issued: IssuedCredentials = serde_json::from_slice(&response.body)
        // The body may have secrets.
        .map_err(|error| anyhow!("the response is not credentials in JSON: {error}"))?;
    Ok(Expiring {
        value: Credentials {
            access_key: issued.access_key_id,
            secret_key: Secret(issued.secret_access_key),
            session_token: Secret(issued.token),
        },
        expires: Some(issued.expiration.parse().context("Expiration")?),
    })
}

/// Returns the domain of AWS in a region.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_issuer::{Issuer, now, of};
    use super::*;

    fn issued(key: &str, expiration: &str) -> String {
        format!(
            r#"{{"Code":"Success","AccessKeyId":"{key}","SecretAccessKey":"s","Token":"t","Expiration":"{expiration}"}}"#
        )
    }

    #[test]
    fn a_service_account_is_exchanged_for_the_credentials_of_its_role() {
        let body = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
            <SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey><Expiration>2026-01-01T01:00:00Z</Expiration>\
            <AccessKeyId>AKID</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
        let issuer = Issuer::start(vec![body.to_owned()]);
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "jwt.a+b\n").unwrap();
        let env = of(&[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ]);
        let source = Source::of_role(&env, &issuer.url, "eu-west-1").unwrap();
        let mut credentials = CachedCredentials::new(source.unwrap());
        let found = credentials.get(now()).unwrap();
        assert_eq!(
            (
                &*found.access_key,
                &*found.secret_key.0,
                &*found.session_token.0
            ),
            ("AKID", "s", "t")
        );
        let request = issuer.requests.lock()[0].clone();
        for part in [
            "post / http/1.1",
            "Action=AssumeRoleWithWebIdentity",
            "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr",
            "WebIdentityToken=jwt.a%2Bb",
        ] {
            assert!(request.contains(part), "{part}: {request}");
        }
    }

    #[test]
    fn the_endpoint_of_a_container_gets_its_token() {
        let issuer = Issuer::start(vec![issued("A", "2026-01-01T06:00:00Z")]);
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "secret").unwrap();
        let url = format!("{}/v1/credentials", issuer.url);
        let env = of(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
            (
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                token.to_str().unwrap(),
            ),
        ]);
        let source = Source::of_role(&env, "", "eu-west-1").unwrap().unwrap();
        let mut credentials = CachedCredentials::new(source);
        assert_eq!(credentials.get(now()).unwrap().access_key, "A");
        let request = issuer.requests.lock()[0].clone();
        assert!(request.contains("get /v1/credentials"), "{request}");
        assert!(request.contains("authorization: secret"), "{request}");
    }

    #[test]
    fn the_metadata_service_is_asked_with_a_token_of_its_own() {
        let issuer = Issuer::start(vec![
            "session".to_owned(),
            "my-role".to_owned(),
            issued("A", "2026-01-01T06:00:00Z"),
        ]);
        let env = of(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &issuer.url)]);
        let mut credentials = CachedCredentials::new(Source::of_instance(&env).unwrap());
        assert_eq!(credentials.get(now()).unwrap().access_key, "A");
        let requests = issuer.requests.lock().clone();
        assert!(requests[0].starts_with("put /latest/api/token"));
        for (request, path) in requests[1..].iter().zip(["", "my-role"]) {
            let line = format!("get /latest/meta-data/iam/security-credentials/{path} http/1.1");
            assert!(request.starts_with(&line), "{request}");
            assert!(request.contains("x-aws-ec2-metadata-token: session"));
        }
        let disabled = of(&[("AWS_EC2_METADATA_DISABLED", "true")]);
        assert!(Source::of_instance(&disabled).is_none());
    }

    #[test]
    fn credentials_are_renewed_before_they_expire() {
        let issuer = Issuer::start(vec![
            issued("first", "2026-01-01T01:00:00Z"),
            "fail".to_owned(),
            issued("second", "2026-01-01T02:00:00Z"),
            "fail".to_owned(),
        ]);
        let source = Source::Container {
            url: issuer.url.clone(),
            token: Secret::default(),
            token_file: PathBuf::new(),
        };
        let mut credentials = CachedCredentials::new(source);
        let mut key_at = |time: &str| {
            let found = credentials.get(time.parse().unwrap());
            found
                .map(|found| found.access_key.clone())
                .map_err(|error| format!("{error:#}"))
        };
        assert_eq!(key_at("2026-01-01T00:00:00Z").unwrap(), "first");
        assert_eq!(key_at("2026-01-01T00:54:59Z").unwrap(), "first");
        assert_eq!(issuer.requests.lock().len(), 1);
        // The renewal fails, and the credentials are valid for four more minutes.
        assert_eq!(key_at("2026-01-01T00:56:00Z").unwrap(), "first");
        assert_eq!(key_at("2026-01-01T00:56:29Z").unwrap(), "first");
        assert_eq!(issuer.requests.lock().len(), 2);
        assert_eq!(key_at("2026-01-01T00:57:00Z").unwrap(), "second");
        let error = key_at("2026-01-01T02:00:00Z").unwrap_err();
        assert!(error.contains("returned 500"), "{error}");
    }

    #[test]
    fn tokens_are_not_sent_in_plain_text_over_a_network() {
        for good in [
            "https://example.com/x",
            "http://127.0.0.1:80/x",
            "http://localhost/x",
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://[::1]:80",
        ] {
            check_confidential(good, &CONTAINER_HOSTS).unwrap();
        }
        for bad in [
            "http://example.com/x",
            "http://127.0.0.1.example.com/x",
            "http://127.1@example.com/",
            "http://169.254.170.2.example.com",
            "ftp://localhost",
            "localhost",
        ] {
            assert!(check_confidential(bad, &CONTAINER_HOSTS).is_err(), "{bad}");
        }
    }
}
