//! `varve tsdb`: work on a data directory that no server has open.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use varve_tsdb::{Db, MemoryBudget, Options, QueryContext};

use super::args::{ChurnArgs, CompactArgs};
use crate::client::Client;
use crate::machine;
use crate::server::churn;
use crate::server::churn::Churn;

/// Runs `varve tsdb compact`: flush, then merge everything, and say what that gave.
///
/// # Errors
/// If the directory does not exist, is in use, or cannot be read or written.
pub(crate) fn compact(args: &CompactArgs) -> Result<()> {
    let db = open(&args.path)?;
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

/// Runs `varve tsdb churn`: asks a server, or looks at a data directory itself.
///
/// # Errors
/// If the server does not answer, or the directory does not exist, is in use, or cannot be read.
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
    let answer = client.get("/api/v1/status/churn")?;
    ensure!(answer.is_success(), "{} answers {}: {}", args.url, answer.status, answer.text());
    let mut answer: serde_json::Value = serde_json::from_slice(&answer.body).context("read the answer")?;
    let data = answer.get_mut("data").map(serde_json::Value::take).unwrap_or_default();
    serde_json::from_value(data).context("read the answer")
}

fn churn_of(path: &Path) -> Result<Churn> {
    let db = open(path)?;
    let Some(newest_ms) = db.stats().newest_ms else { bail!("data directory {path:?} holds no samples") };
    let ctx = QueryContext::new(Duration::MAX, MemoryBudget::new("memory", usize::MAX));
    churn::find(&db, &ctx, newest_ms, churn::RANGE_MS).context("look for new series")
}

/// Opens a data directory that exists, without work in the background.
fn open(path: &Path) -> Result<Db> {
    if !path.is_dir() {
        bail!("data directory {path:?} does not exist");
    }
    let options = Options { wal_replay_concurrency: machine::cores(), background: false, ..Options::default() };
    Db::open(path, options).with_context(|| format!("open data directory {path:?}"))
}
