//! Verification of client certificates: `client_auth_type`, `client_ca` and `client_allowed_sans`.
//!
//! Invariant: in every mode, a client with a certificate proves that it has the private key.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::file::TlsServerConfig;

/// Returns the verifier of client certificates, or `None` if clients need none.
///
/// # Errors
/// If settings are invalid or contradict each other. The message names the key.
pub(super) fn verifier(
    settings: &TlsServerConfig,
    client_ca: Option<Vec<u8>>,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>> {
    let (is_mandatory, is_verified) = match (&*settings.client_auth_type, &client_ca) {
        ("" | "NoClientCert", None) if settings.client_allowed_sans.is_empty() => return Ok(None),
        ("" | "NoClientCert", None) => {
            bail!(
                "tls_server_config: client_allowed_sans have been configured without a client_auth_type"
            )
        }
        ("" | "NoClientCert", Some(_)) => {
            bail!("tls_server_config: client CAs have been configured without a client_auth_type")
        }
        ("RequestClientCert", _) => (false, false),
        ("RequireAnyClientCert" | "RequireClientCert", _) => (true, false),
        ("VerifyClientCertIfGiven", _) => (false, true),
        ("RequireAndVerifyClientCert", _) => (true, true),
        (other, _) => bail!("tls_server_config.client_auth_type: {other:?} is unknown"),
    };
    let algorithms = provider.signature_verification_algorithms;
    let chain = if is_verified {
        Some(chain_verifier(client_ca, provider)?)
    } else {
        None
    };
    let allowed_sans = settings.client_allowed_sans.clone();
    Ok(Some(Arc::new(ClientCerts {
        is_mandatory,
        chain,
        allowed_sans,
        algorithms,
    })))
}

fn chain_verifier(
    client_ca: Option<Vec<u8>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>> {
    let ca = client_ca.context("tls_server_config.client_ca_file: it is missing")?;
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(&ca) {
        let cert = cert.map_err(|error| anyhow!("tls_server_config.client_ca: {error}"))?;
        roots.add(cert).context("tls_server_config.client_ca")?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().context("tls_server_config.client_ca")
}

/// Verifies client certificates.
#[derive(Debug)]
struct ClientCerts {
    /// Whether a certificate is required.
    is_mandatory: bool,
    /// Verifies the issuer, unless this is `None`.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// The certificate must have one of these names. Empty: any.
    allowed_sans: Vec<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientCerts {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain
            .as_ref()
            .map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        let is_allowed = self.allowed_sans.is_empty()
            || subject_alternative_names(end_entity)?
                .iter()
                .any(|name| self.allowed_sans.contains(name));
        if is_allowed {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the subject alternative names of a certificate: host names, e-mail addresses, IP
/// addresses and URIs, in the form that exporter-toolkit compares.
fn subject_alternative_names(cert: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    let bad = || Error::from(CertificateError::BadEncoding);
    let (_, cert) = X509Certificate::from_der(cert).map_err(|_| bad())?;
    let Some(extension) = cert.subject_alternative_name().map_err(|_| bad())? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for name in &extension.value.general_names {
        match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                names.push((*name).to_owned());
            }
            GeneralName::IPAddress(bytes) => {
                names.extend(ip_address(bytes).map(|address| address.to_string()));
            }
            _ => {}
        }
    }
    Ok(names)
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};
    use tokio_rustls::rustls::crypto::ring;

    /// Returns a self-signed certificate for these names.
    fn cert(names: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    }

    fn of(
        client_auth_type: &str,
        allowed_sans: &[&str],
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>> {
        let client_allowed_sans = allowed_sans.iter().map(|san| (*san).to_owned()).collect();
        let config = TlsServerConfig {
            client_auth_type: client_auth_type.to_owned(),
            client_allowed_sans,
            ..TlsServerConfig::default()
        };
        verifier(&config, None, Arc::new(ring::default_provider()))
    }

    #[test]
    fn a_certificate_needs_one_of_the_allowed_names() {
        let names = vec![
            SanType::DnsName("node-1.example".try_into().unwrap()),
            SanType::Rfc822Name("ann@example.com".try_into().unwrap()),
            SanType::URI("spiffe://cluster/ns/monitoring".try_into().unwrap()),
            SanType::IpAddress([10, 0, 0, 1].into()),
            SanType::IpAddress("fd00::1".parse().unwrap()),
        ];
        let cert = cert(names);
        let check = |allowed: &str, expect: bool| {
            let verifier = of("RequireAnyClientCert", &["other.example", allowed])
                .unwrap()
                .unwrap();
            assert_eq!(
                verifier
                    .verify_client_cert(&cert, &[], UnixTime::now())
                    .is_ok(),
                expect,
                "{allowed}"
            );
        };
        for allowed in [
            "node-1.example",
            "ann@example.com",
            "spiffe://cluster/ns/monitoring",
            "10.0.0.1",
            "fd00::1",
        ] {
            check(allowed, true);
        }
        for allowed in ["node-2.example", "example", "10.0.0.2", ""] {
            check(allowed, false);
        }
        let none = of("RequireAnyClientCert", &["x"]).unwrap().unwrap();
        assert!(
            none.verify_client_cert(&self::cert(Vec::new()), &[], UnixTime::now())
                .is_err()
        );
        assert!(
            none.verify_client_cert(
                &CertificateDer::from(vec![0x30, 0x80, 1]),
                &[],
                UnixTime::now()
            )
            .is_err()
        );
    }

    #[test]
    fn certificates_are_required_by_type() {
        let check = |client_auth_type: &str, expect: Option<bool>| {
            let verifier = of(client_auth_type, &[]).unwrap();
            assert_eq!(
                verifier.map(|verifier| verifier.client_auth_mandatory()),
                expect,
                "{client_auth_type}"
            );
        };
        check("", None);
        check("NoClientCert", None);
        check("RequestClientCert", Some(false));
        check("RequireAnyClientCert", Some(true));
        assert!(
            of("", &["x"])
                .unwrap_err()
                .to_string()
                .contains("without a client_auth_type")
        );
    }
}
