//! TLS settings that the server and its clients share: versions and certificates.

use anyhow::{Context, Result, anyhow, ensure};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{SupportedProtocolVersion, version};

/// Returns the versions from `min` to `max`. An empty `min` is 1.2, an empty `max` 1.3.
///
/// # Errors
/// If a text is not a version, or `min` is above `max`. The message names the key in `section`.
pub fn versions(
    section: &str,
    min: &str,
    max: &str,
) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let number = |key: &str, text: &str, default| match text {
        "" => Ok(default),
        "TLS12" => Ok(2),
        "TLS13" => Ok(3),
        _ => Err(anyhow!(
            "{section}.{key}: unsupported version {text:?}; the oldest version is TLS12, the newest TLS13"
        )),
    };
    let min = number("min_version", min, 2)?;
    let max = number("max_version", max, 3)?;
    ensure!(min <= max, "{section}: min_version is above max_version");
    let all = [(2, &version::TLS12), (3, &version::TLS13)];
    Ok(all
        .into_iter()
        .filter(|(n, _)| (min..=max).contains(n))
        .map(|(_, version)| version)
        .collect())
}

/// Parses certificates and their private key.
///
/// # Errors
/// If one is not valid PEM, or there is no certificate. The message names the key in `section`, and
/// contains no part of the private key.
pub fn identity(
    section: &str,
    certs: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certs).collect();
    let certs = certs.with_context(|| format!("{section}.cert"))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| anyhow!("{section}.key: not a private key in PEM"))?;
    ensure!(!certs.is_empty(), "{section}.cert: no certificate in PEM");
    Ok((certs, key))
}
