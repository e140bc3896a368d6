//! TLS of the client: trusted certificates, and the client certificate.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::access::{TlsSettings, text_or_file};
use crate::tls_settings::{identity, versions};

/// Returns the configuration of rustls.
///
/// # Errors
/// If a setting is invalid. The message names its key.
pub(super) fn client_config(settings: &TlsSettings) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    // As the oldest version, these are satisfied by any supported one.
    let min_version = if matches!(&*settings.min_version, "TLS10" | "TLS11") {
        "TLS12"
    } else {
        &*settings.min_version
    };
    let versions = versions("tls_config", min_version, &settings.max_version)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?;
    let trust = if settings.insecure_skip_verify {
        Trust::Any
    } else {
        trust(settings, &provider)?
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { trust, provider }));
    let cert = text_or_file(&settings.cert, &settings.cert_file).context("tls_config.cert")?;
    let key = text_or_file(&settings.key.0, &settings.key_file).context("tls_config.key")?;
    let mut config = match (cert, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let (certs, key) = identity("tls_config", cert.as_bytes(), key.as_bytes())?;
            builder
                .with_client_auth_cert(certs, key)
                .context("tls_config.cert")?
        }
        _ => bail!("tls_config: cert and key go together"),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the name that the server's certificate must have.
///
/// # Errors
/// If it is not a valid name.
pub(super) fn server_name(settings: &TlsSettings, host: &str) -> Result<ServerName<'static>> {
    let name = if settings.server_name.is_empty() {
        host
    } else {
        &settings.server_name
    };
    ServerName::try_from(name.to_owned())
        .with_context(|| format!("{name:?} is not a valid server name"))
}

/// Returns `true` if a handshake failed because no trusted authority issued the server's certificate.
pub(super) fn is_unknown_issuer(error: &io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<Error>());
    matches!(
        cause,
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    )
}

/// Returns the trusted roots, from the file or from the operating system.
fn trust(settings: &TlsSettings, provider: &Arc<CryptoProvider>) -> Result<Trust> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    if let Some(ca) = text_or_file(&settings.ca, &settings.ca_file).context("tls_config.ca")? {
        for cert in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            let cert = cert.context("tls_config.ca")?;
            roots.add(cert.clone()).context("tls_config.ca")?;
            named.push(cert);
        }
        ensure!(!roots.is_empty(), "tls_config.ca: no certificate in PEM");
    } else {
        // Invalid certificates are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            bail!("the operating system has no root certificates; set tls_config.ca_file");
        }
    }
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()?;
    Ok(Trust::Roots { signed, named })
}

/// The trusted certificates.
#[derive(Debug)]
enum Trust {
    /// All certificates, for `insecure_skip_verify`. Signatures are still checked: the server has
    /// the key of its certificate.
    Any,
    Roots {
        /// Verifies that a root signed the certificate.
        signed: Arc<WebPkiServerVerifier>,
        /// The roots of the settings. A server may present one of them as its own certificate, if
        /// it is self-signed with `openssl req -x509`. rustls rejects CA certificates as server
        /// certificates.
        named: Vec<CertificateDer<'static>>,
    },
}

/// Verifies a server's certificate.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::Any => {}
            Trust::Roots { named, .. } if named.iter().any(|root| root == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                verify_validity(end_entity, now)?;
            }
            Trust::Roots { signed, .. } => {
                signed.verify_server_cert(
                    end_entity,
                    intermediates,
                    server_name,
                    ocsp_response,
                    now,
                )?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Checks the validity period of a certificate.
fn verify_validity(cert: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(cert).map_err(|_| CertificateError::BadEncoding)?;
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match parsed.validity() {
        validity if now_s < validity.not_before.timestamp() => {
            Err(CertificateError::NotValidYet.into())
        }
        validity if now_s > validity.not_after.timestamp() => Err(CertificateError::Expired.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(text: &str, expect: &str) {
        let error = format!(
            "{:#}",
            client_config(&serde_yaml_ng::from_str(text).unwrap()).unwrap_err()
        );
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn invalid_settings_are_rejected_by_key() {
        check("ca_file: nowhere", "tls_config.ca: read \"nowhere\"");
        check("ca: nothing", "tls_config.ca: no certificate");
        check(
            "{insecure_skip_verify: true, cert: x}",
            "cert and key go together",
        );
        check(
            "{insecure_skip_verify: true, cert: x, key: s3cret}",
            "not a private key in PEM",
        );
        check(
            "{min_version: TLS13, max_version: TLS12}",
            "above max_version",
        );
        check("max_version: TLS11", "unsupported version \"TLS11\"");
    }

    #[test]
    fn a_self_signed_server_is_trusted_by_name_and_validity() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut of_cert = rcgen::CertificateParams::new(["store".to_owned()]).unwrap();
        of_cert.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        of_cert.not_before = rcgen::date_time_ymd(2020, 1, 1);
        of_cert.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let own = of_cert.self_signed(&key).unwrap();
        let other = of_cert.self_signed(&rcgen::KeyPair::generate().unwrap());
        let provider = Arc::new(ring::default_provider());
        let settings = TlsSettings {
            ca: own.pem(),
            ..TlsSettings::default()
        };
        let verifier = Verifier {
            trust: trust(&settings, &provider).unwrap(),
            provider,
        };
        let verify = |cert: &rcgen::Certificate, name: &'static str, at_s| {
            let name = ServerName::try_from(name).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
            verifier
                .verify_server_cert(cert.der(), &[], &name, &[], now)
                .map(|_| ())
        };
        let in_2019 = 1_550_000_000;
        let in_2025 = 1_750_000_000;
        let in_2031 = 1_930_000_000;
        assert_eq!(verify(&own, "store", in_2025), Ok(()));
        assert!(verify(&own, "other", in_2025).is_err());
        assert_eq!(
            verify(&own, "store", in_2019),
            Err(CertificateError::NotValidYet.into())
        );
        assert_eq!(
            verify(&own, "store", in_2031),
            Err(CertificateError::Expired.into())
        );
        assert!(
            verify(&other.unwrap(), "store", in_2025).is_err(),
            "with the same name and another key"
        );
    }

    #[test]
    fn the_server_name_of_the_settings_takes_precedence() {
        let settings = TlsSettings {
            server_name: "store".to_owned(),
            ..TlsSettings::default()
        };
        assert_eq!(
            server_name(&settings, "127.0.0.1").unwrap(),
            ServerName::try_from("store").unwrap()
        );
        assert_eq!(
            server_name(&TlsSettings::default(), "::1").unwrap(),
            ServerName::try_from("::1").unwrap()
        );
    }
}
