//! `varve tsdb churn` and `varve tsdb compact`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use varve_tsdb::QueryContext;
use varve_tsdb::context::MemoryBudget;

use super::args::{ChurnArgs, CompactArgs};
use super::source::open_varve;
use crate::server::churn;
use crate::server::churn::Churn;
use crate::tools::client::Client;

/// Runs `varve tsdb compact`: flushes, merges everything, and prints the result.
///
/// # Errors
/// If the directory does not exist, is open elsewhere, or cannot be read or written.
pub(crate) fn compact(args: &CompactArgs) -> Result<()> {
    let db = open_varve(&args.path)?;
    let before = db.stats();
    db.compact_fully().context("compact")?;
    let after = db.stats();
    println!(
        "{} blocks of {} bytes are now {} of {}, {} samples, {} bytes of index",
        before.n_blocks,
        before.blocks_size_bytes,
        after.n_blocks,
        after.blocks_size_bytes,
        after.blocks_samples,
        after.blocks_index_bytes
    );
    Ok(())
}

/// Runs `varve tsdb churn` on a server or a data directory.
///
/// # Errors
/// If the server cannot be reached, or the directory does not exist, is open elsewhere, or cannot be read.
pub(crate) fn churn(args: &ChurnArgs) -> Result<()> {
    let found = match &args.path {
        Some(path) => churn_of(path)?,
        None => churn_at(args)?,
    };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&found)?),
        false => print!("{}", found.print()),
    }
    Ok(())
}

fn churn_at(args: &ChurnArgs) -> Result<Churn> {
    let mut client = Client::with_token_file(&args.url, args.token_file.as_deref())?;
    let response = client.get("/api/v1/status/churn")?;
    ensure!(response.is_success(), "{} returned {}: {}", args.url, response.status, response.text());
    let mut json: serde_json::Value = serde_json::from_slice(&response.body).context("parse the response")?;
    let data = json.get_mut("data").map(serde_json::Value::take).unwrap_or_default();
    serde_json::from_value(data).context("parse the response")
}

fn churn_of(path: &Path) -> Result<Churn> {
    let db = open_varve(path)?;
    let Some(newest_ms) = db.stats().newest_ms else { bail!("data directory {path:?} has no samples") };
    let ctx = QueryContext::new(Duration::MAX, MemoryBudget::new("memory", usize::MAX));
    churn::find(&db, &ctx, newest_ms, churn::RANGE_MS).context("find new series")
}
