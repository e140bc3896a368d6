//! TLS of the client: whom to trust, and who we are.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, SupportedProtocolVersion, version,
};

use super::access::{TlsSettings, read};

/// Returns what rustls connects with.
///
/// # Errors
/// What is missing or not sound, by its key.
pub(super) fn client_config(of: &TlsSettings) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&versions(of)?)?;
    let builder = if of.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustsAll(provider)))
    } else {
        builder.with_root_certificates(roots(of)?)
    };
    let cert = pem(&of.cert, &of.cert_file).context("tls_config.cert")?;
    let key = pem(&of.key.0, &of.key_file).context("tls_config.key")?;
    let mut config = match (cert, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
            // Its error says what is wrong with the key, and nothing of what is in it.
            let key = key.map_err(|_| anyhow!("tls_config.key: no private key in PEM"))?;
            builder.with_client_auth_cert(certs.context("tls_config.cert")?, key).context("tls_config.cert")?
        }
        _ => bail!("tls_config: cert and key go together"),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the name that the server's certificate has to have.
///
/// # Errors
/// If it is none.
pub(super) fn server_name(of: &TlsSettings, host: &str) -> Result<ServerName<'static>> {
    let name = if of.server_name.is_empty() { host } else { &of.server_name };
    ServerName::try_from(name.to_owned()).with_context(|| format!("{name:?} is not the name of a server"))
}

/// Returns who signs certificates that we trust: those of the file, or those that the operating system trusts.
fn roots(of: &TlsSettings) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = pem(&of.ca, &of.ca_file).context("tls_config.ca")? {
        for cert in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(cert.context("tls_config.ca")?).context("tls_config.ca")?;
        }
        ensure!(!roots.is_empty(), "tls_config.ca: no certificate in PEM");
        return Ok(roots);
    }
    // One that cannot be used is no reason against the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        bail!("the operating system has no root certificates; give them as tls_config.ca_file");
    }
    Ok(roots)
}

fn pem(text: &str, file: &Path) -> Result<Option<String>> {
    match (text.is_empty(), file.as_os_str().is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(text.to_owned())),
        (true, false) => read(file).map(Some),
        (false, false) => bail!("give the text or its file, not both"),
    }
}

fn versions(of: &TlsSettings) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let number = |key: &str, text: &str, default| match text {
        "" => Ok(default),
        "TLS10" | "TLS11" if key == "min_version" => Ok(2),
        "TLS12" => Ok(2),
        "TLS13" => Ok(3),
        _ => Err(anyhow!("tls_config.{key}: {text:?} is not spoken; TLS12 and TLS13 are")),
    };
    let (min, max) = (number("min_version", &of.min_version, 2)?, number("max_version", &of.max_version, 3)?);
    let all = [(2, &version::TLS12), (3, &version::TLS13)];
    let spoken: Vec<_> = all.into_iter().filter(|(n, _)| (min..=max).contains(n)).map(|(_, version)| version).collect();
    ensure!(!spoken.is_empty(), "tls_config: min_version is above max_version");
    Ok(spoken)
}

/// Trusts every certificate, as `insecure_skip_verify` asks for. Signatures are checked all the same: the server has the
/// key of the certificate that it shows.
#[derive(Debug)]
struct TrustsAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let refused = format!("{:#}", client_config(&serde_yaml_ng::from_str(text).unwrap()).unwrap_err());
        assert!(refused.contains(expect), "{refused}");
    }

    #[test]
    fn what_is_not_sound_is_refused_by_its_key() {
        check("ca_file: nowhere", "tls_config.ca: read \"nowhere\"");
        check("ca: nothing", "tls_config.ca: no certificate");
        check("{insecure_skip_verify: true, cert: x}", "cert and key go together");
        check("{insecure_skip_verify: true, cert: x, key: s3cret}", "no private key in PEM");
        check("{min_version: TLS13, max_version: TLS12}", "above max_version");
        check("max_version: TLS11", "\"TLS11\" is not spoken");
    }

    #[test]
    fn the_name_of_the_settings_goes_before_that_of_the_url() {
        let settings = TlsSettings { server_name: "store".to_owned(), ..TlsSettings::default() };
        assert_eq!(server_name(&settings, "127.0.0.1").unwrap(), ServerName::try_from("store").unwrap());
        assert_eq!(server_name(&TlsSettings::default(), "::1").unwrap(), ServerName::try_from("::1").unwrap());
    }
}
