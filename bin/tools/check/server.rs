//! `varve check healthy` and `varve check ready`.

use anyhow::{Result, bail};

use super::Verdict;
use super::args::ServerArgs;
use crate::client::Client;

/// Asks a server how it is.
pub(super) fn check(args: &ServerArgs, path: &str) -> Result<Verdict> {
    let answer = Client::with_access(&args.url, args.access.access()?)?.get(path)?;
    if answer.status != 200 {
        bail!("check failed: URL={}{path}, status={}", args.url, answer.status);
    }
    eprintln!("  SUCCESS:  {}", String::from_utf8_lossy(&answer.body));
    Ok(Verdict::Sound)
}
