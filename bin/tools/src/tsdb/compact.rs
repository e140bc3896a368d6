//! `varve tsdb compact`.

use std::sync::Arc;

use anyhow::{Context, Result};
use varve_env::RealFs;
use varve_env::damage::DamageReport;

use super::args::CompactArgs;
use super::source::{add_remedy, open_varve, varve_damage};

/// Runs `varve tsdb compact`: flushes, merges everything, and prints the result. Returns the damage
/// that was found.
///
/// # Errors
/// If the directory does not exist, is open elsewhere, or cannot be read or written.
pub(super) fn compact(args: &CompactArgs) -> Result<DamageReport> {
    let db = open_varve(&args.path, Arc::new(RealFs), None)
        .map_err(|error| add_remedy(error, "run varve admin compact SERVER"))?;
    let before = db.stats();
    let damage = varve_damage(&db, &args.path)?;
    db.compact_fully().context("compact")?;
    let after = db.stats();
    println!(
        "compacted {} blocks ({} bytes) to {} blocks ({} bytes) with {} samples and {} bytes of index",
        before.n_blocks,
        before.blocks_size_bytes,
        after.n_blocks,
        after.blocks_size_bytes,
        after.blocks_samples,
        after.blocks_index_bytes
    );
    if before.replayed.is_damaged() {
        eprintln!(
            "the damaged bytes of the WAL are in {:?}",
            args.path.join("quarantine")
        );
    }
    Ok(damage)
}
