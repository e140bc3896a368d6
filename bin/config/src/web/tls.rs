//! `tls_server_config` as a configuration of rustls.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use tokio_rustls::rustls::{ServerConfig, SupportedCipherSuite};
use varve_client::tls_settings::{identity, versions};

use super::client_certs;
use super::file::TlsServerConfig;
use super::fingerprint::Fingerprint;

/// The ALPN id of HTTP/2.
pub const ALPN_HTTP2: &[u8] = b"h2";

/// Returns the configuration of rustls and whether it requires client certificates. Returns `None`
/// for an empty section, which means plain text. Paths are relative to `folder`. The files that
/// were read are added to `files`.
///
/// # Errors
/// If a setting is missing or invalid. The message names the key.
pub(super) fn server_config(
    settings: &TlsServerConfig,
    http2: bool,
    folder: &Path,
    files: &mut Vec<Fingerprint>,
) -> Result<Option<(Arc<ServerConfig>, bool)>> {
    let cert = pem(&settings.cert, &settings.cert_file, folder, files)
        .context("tls_server_config.cert_file")?;
    let key = pem(&settings.key.0, &settings.key_file, folder, files)
        .context("tls_server_config.key_file")?;
    let client_ca = pem(&settings.client_ca, &settings.client_ca_file, folder, files)
        .context("tls_server_config.client_ca_file")?;
    let (cert, key) = match (cert, key) {
        (None, None) if client_ca.is_none() && settings.client_auth_type.is_empty() => {
            return Ok(None);
        }
        (None, _) => bail!("tls_server_config: missing one of cert or cert_file"),
        (_, None) => bail!("tls_server_config: missing one of key or key_file"),
        (Some(cert), Some(key)) => (cert, key),
    };
    let provider = Arc::new(provider(settings)?);
    let versions = versions(
        "tls_server_config",
        &settings.min_version,
        &settings.max_version,
    )?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?;
    let (certs, key) = identity("tls_server_config", &cert, &key)?;
    let verifier = client_certs::verifier(settings, client_ca, provider)?;
    let requires_client_certs = verifier
        .as_ref()
        .is_some_and(|verifier| verifier.client_auth_mandatory());
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(certs, key)
        .context("tls_server_config: certificate and key")?;
    config.ignore_client_order = settings.prefer_server_cipher_suites.unwrap_or(true);
    let http1 = &b"http/1.1"[..];
    let spoken = if http2 {
        vec![ALPN_HTTP2, http1]
    } else {
        vec![http1]
    };
    config.alpn_protocols = spoken.into_iter().map(<[u8]>::to_vec).collect();
    Ok(Some((Arc::new(config), requires_client_certs)))
}

/// Returns PEM text, inline or from a file.
fn pem(
    inline: &str,
    file: &Path,
    folder: &Path,
    files: &mut Vec<Fingerprint>,
) -> Result<Option<Vec<u8>>> {
    match (inline.is_empty(), file.as_os_str().is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(inline.as_bytes().to_vec())),
        (true, false) => {
            let path = folder.join(file);
            files.push(Fingerprint::new(&path));
            let text = std::fs::read(&path).with_context(|| format!("read {path:?}"))?;
            Ok(Some(text))
        }
        (false, false) => bail!("set the text or its file, not both"),
    }
}

/// Returns the enabled cipher suites and curves.
fn provider(settings: &TlsServerConfig) -> Result<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !settings.cipher_suites.is_empty() {
        provider.cipher_suites = cipher_suites(&provider.cipher_suites, &settings.cipher_suites)?;
    }
    if !settings.curve_preferences.is_empty() {
        provider.kx_groups = curves(&settings.curve_preferences)?;
    }
    Ok(provider)
}

/// Returns the suites with these names. As in Go, all suites of TLS 1.3 are enabled, listed or not.
fn cipher_suites(
    known: &[SupportedCipherSuite],
    names: &[String],
) -> Result<Vec<SupportedCipherSuite>> {
    let mut enabled = known.to_vec();
    enabled.retain(|suite| suite.tls13().is_some());
    for name in names {
        let suite = known
            .iter()
            .find(|suite| suite_name(suite) == *name)
            .with_context(|| {
                format!("tls_server_config.cipher_suites: {name:?} is unknown or insecure")
            })?;
        if suite.tls13().is_none() {
            enabled.push(*suite);
        }
    }
    Ok(enabled)
}

/// Returns Go's name of a suite: those of TLS 1.3 start with `TLS_`, not with `TLS13_`.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn curves(names: &[String]) -> Result<Vec<&'static dyn SupportedKxGroup>> {
    let mut curves = Vec::new();
    for name in names {
        curves.push(match name.as_str() {
            "X25519" => ring::kx_group::X25519,
            "CurveP256" => ring::kx_group::SECP256R1,
            "CurveP384" => ring::kx_group::SECP384R1,
            _ => bail!("tls_server_config.curve_preferences: {name:?} is unknown"),
        });
    }
    Ok(curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::file::parse;

    fn config(text: &str) -> Result<Option<Arc<ServerConfig>>> {
        let file = parse(&format!("tls_server_config:\n{text}")).unwrap();
        server_config(
            &file.tls_server_config.unwrap_or_default(),
            file.http_server_config.http2(),
            Path::new(""),
            &mut Vec::new(),
        )
        .map(|found| found.map(|(config, _)| config))
    }

    /// Returns a section with a self-signed certificate.
    fn with_cert(rest: &str) -> String {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let block = |pem: String| {
            pem.lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
        };
        let cert = block(made.cert.pem());
        let key = block(made.signing_key.serialize_pem());
        format!("  cert: |\n{cert}  key: |\n{key}  client_ca: |\n{cert}{rest}")
    }

    #[test]
    fn settings_have_the_meaning_of_exporter_toolkit() {
        assert!(config("  {}").unwrap().is_none());
        let tls = config(&with_cert(
            "  client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\n",
        ));
        assert_eq!(
            tls.unwrap().unwrap().alpn_protocols,
            [&b"h2"[..], b"http/1.1"]
        );
        let tls = config(&with_cert(
            "  client_auth_type: RequireAndVerifyClientCert\nhttp_server_config: {http2: false}\n",
        ));
        assert_eq!(tls.unwrap().unwrap().alpn_protocols, [b"http/1.1"]);
        let rest = "  client_auth_type: VerifyClientCertIfGiven\n  curve_preferences: [X25519, CurveP256]\n  \
                    cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]\n";
        let tls = config(&with_cert(rest)).unwrap().unwrap();
        let suites = tls.crypto_provider().cipher_suites.iter();
        assert_eq!(
            suites
                .map(|suite| suite.tls13().is_some())
                .collect::<Vec<_>>(),
            [true, true, true, false]
        );
    }

    #[test]
    fn invalid_settings_are_rejected_by_key() {
        let check = |text: &str, expect: &str| {
            let error = format!("{:#}", config(text).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        check("  cert_file: nowhere", "cert_file: read \"nowhere\"");
        check("  key: x", "missing one of cert or cert_file");
        check("  cert: x", "missing one of key or key_file");
        check("  cert: x\n  key: s3cret", "not a private key in PEM");
        check("  cert: x\n  cert_file: y\n  key: z", "not both");
        check(
            "  client_auth_type: RequireAndVerifyClientCert",
            "missing one of cert",
        );
        check(&with_cert(""), "without a client_auth_type");
        check(
            &with_cert("  client_auth_type: Some\n"),
            "\"Some\" is unknown",
        );
        check(
            &with_cert("  min_version: TLS10\n"),
            "the oldest version is TLS12",
        );
        check(
            &with_cert("  min_version: TLS13\n  max_version: TLS12\n"),
            "above max_version",
        );
        check(
            &with_cert("  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n"),
            "unknown or insecure",
        );
        check(
            &with_cert("  cipher_suites: [TLS13_AES_128_GCM_SHA256]\n"),
            "unknown or insecure",
        );
    }
}
