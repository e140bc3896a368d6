//! `varve tsdb`: work on a data directory that no server has open.

use anyhow::{Context, Result, bail};
use varve_tsdb::{Db, Options};

use crate::cli::CompactArgs;
use crate::machine;

/// Runs `varve tsdb compact`: flush, then merge everything, and say what that gave.
///
/// # Errors
/// If the directory does not exist, is in use, or cannot be read or written.
pub(crate) fn compact(args: &CompactArgs) -> Result<()> {
    if !args.path.is_dir() {
        bail!("data directory {:?} does not exist", args.path);
    }
    let cores = machine::cores();
    let options = Options { wal_replay_concurrency: cores, background: false, ..Options::default() };
    let db = Db::open(&args.path, options).with_context(|| format!("open data directory {:?}", args.path))?;
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
