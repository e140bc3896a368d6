//! `varve check healthy` and `varve check ready`.

use anyhow::{Result, bail};

use super::Verdict;
use crate::server_args::ServerArgs;

/// Requests the health or readiness of a server.
pub(super) fn check(args: &ServerArgs, path: &str) -> Result<Verdict> {
    let mut client = args.client()?;
    let response = client.get(path)?;
    if response.status != 200 {
        bail!(
            "check failed: URL={}{path}, status={}",
            client.url(),
            response.status
        );
    }
    eprintln!("  SUCCESS:  {}", String::from_utf8_lossy(&response.body));
    Ok(Verdict::Valid)
}
