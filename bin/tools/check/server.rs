//! `varve check healthy` and `varve check ready`.

use anyhow::{Result, bail};

use super::Verdict;
use super::args::ServerArgs;
use crate::tools::client::Client;

/// Requests the health or readiness of a server.
pub(super) fn check(args: &ServerArgs, path: &str) -> Result<Verdict> {
    let response = Client::with_access(&args.url, args.access.access()?)?.get(path)?;
    if response.status != 200 {
        bail!("check failed: URL={}{path}, status={}", args.url, response.status);
    }
    eprintln!("  SUCCESS:  {}", String::from_utf8_lossy(&response.body));
    Ok(Verdict::Valid)
}
