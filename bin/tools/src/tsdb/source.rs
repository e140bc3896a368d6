//! A data directory of Prometheus or Varve as a stream of series.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, ReadOnlyFs, RealFs};
use varve_model::{Matcher, SampleColumns, TimeRange};
use varve_prometheus::block::{BlockReader, MergedBlocks};
use varve_prometheus::losses::{
    IN_DAMAGED_BLOCKS, IN_DAMAGED_PARTS, OF_UNKNOWN_SERIES, lose_block,
};
use varve_prometheus::recover::recover;
use varve_system::machine;
use varve_system::printing::error_chain;
use varve_tsdb::{Db, Error, Options, ReadContext};

use crate::data_dir::{Owner, ensure_varve, owner};
use crate::scratch_dir::ScratchDir;
use crate::selector::matches;
use crate::wal::prometheus::recover::default_options;
use crate::wal::varve::inspect::wal_damage;

/// A data directory of Varve, opened without changing it.
pub(super) struct OfflineDb {
    pub(super) db: Db,
    /// Damage of WAL and blocks. The store skips it.
    pub(super) damage: DamageReport,
    _lock: Option<File>,
}

impl OfflineDb {
    /// Opens a data directory. Reads all bytes of the blocks that overlap `verified`, and leaves out
    /// damaged ones.
    ///
    /// # Errors
    /// If it does not exist, is open elsewhere, or cannot be read.
    pub(super) fn open(path: &Path, verified: Option<TimeRange>) -> Result<Self> {
        let lock_path = path.join("lock");
        let lock = match File::open(&lock_path) {
            Ok(lock) => Some(lock),
            // A copy of a directory may have no lock file.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("open {lock_path:?}")),
        };
        match lock.as_ref().map(File::try_lock_shared) {
            None | Some(Ok(())) => {}
            Some(Err(TryLockError::WouldBlock)) => {
                return Err(Error::Locked { path: lock_path })
                    .with_context(|| format!("open data directory {path:?}"))
                    .map_err(|error| add_remedy(error, "read a snapshot (varve admin snapshot)"));
            }
            Some(Err(TryLockError::Error(error))) => {
                return Err(error).with_context(|| format!("lock {lock_path:?}"));
            }
        }
        let db = open_varve(path, Arc::new(ReadOnlyFs(Arc::new(RealFs))), verified)?;
        let damage = varve_damage(&db, path)?;
        Ok(Self {
            db,
            damage,
            _lock: lock,
        })
    }

    /// Returns totals with the samples that a replay and damaged blocks lose, and with those that the
    /// WAL repeats.
    pub(super) fn losses(&self) -> SampleTotals {
        let mut totals = SampleTotals::default();
        let replayed = self.db.stats().replayed;
        let n_duplicates = replayed.n_repeated + replayed.n_conflicting;
        totals.n_duplicates += n_duplicates;
        totals.n_found += n_duplicates + replayed.n_unknown_samples;
        totals.lose(OF_UNKNOWN_SERIES, replayed.n_unknown_samples);
        let n_damaged_blocks = self.db.damaged_blocks().n_damaged();
        if self.damage.n_damaged() > n_damaged_blocks {
            totals.lose_unknown(IN_DAMAGED_PARTS);
        }
        if n_damaged_blocks > 0 {
            totals.lose_unknown(IN_DAMAGED_BLOCKS);
        }
        totals
    }
}

/// Returns the damage of the WAL of an open data directory, before a flush removes the WAL, and that
/// of the blocks that are not used.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn varve_damage(db: &Db, path: &Path) -> Result<DamageReport> {
    let mut damage = db.damaged_blocks().clone();
    let replayed = db.stats().replayed;
    if replayed.is_damaged() {
        damage.append(wal_damage(path, replayed.n_file_gaps)?);
    }
    Ok(damage)
}

/// Opens a data directory of Varve, without background tasks. The store itself would create a new
/// one in any directory. See [`OfflineDb::open`] about `verified`.
///
/// # Errors
/// If it does not exist, is not Varve's, is open elsewhere, or cannot be read.
pub(super) fn open_varve(path: &Path, fs: Arc<dyn Fs>, verified: Option<TimeRange>) -> Result<Db> {
    ensure_varve(path)?;
    let options = Options {
        wal_replay_concurrency: machine::cores(),
        background: false,
        verified,
        fs,
        ..Options::default()
    };
    Db::open(path, options).with_context(|| format!("open data directory {path:?}"))
}

/// Says what to do about a data directory that a server has open: stop the server, or another command.
/// Returns other errors unchanged.
pub(super) fn add_remedy(error: anyhow::Error, command: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Error::Locked { .. }) => {
            anyhow!("{}; stop the server, or {command}", error_chain(&error))
        }
        _ => error,
    }
}

/// Opens the blocks of a Prometheus directory, in ascending order of time. Adds their samples to the
/// found ones of `totals`, and reports those that cannot be opened.
///
/// # Errors
/// If the directory cannot be listed.
pub(super) fn open_blocks(
    path: &Path,
    totals: &mut SampleTotals,
    damage: &mut DamageReport,
) -> Result<Vec<(PathBuf, BlockReader)>> {
    let mut blocks = Vec::new();
    for dir in BlockReader::list(&RealFs, path).context("list the blocks")? {
        match BlockReader::open(&RealFs, &dir, damage) {
            Ok(block) => {
                totals.n_found += block.meta().stats.n_samples;
                blocks.push((dir, block));
            }
            // A block that cannot be opened costs only itself.
            Err(error) => {
                damage.push(&dir, 0, DamageKind::Corrupt, error.to_string());
                lose_block(&RealFs, &dir, totals);
            }
        }
    }
    blocks.sort_by_key(|(_, block)| block.meta().min_ms);
    Ok(blocks)
}

/// Selected series and times.
pub(super) struct Selection {
    /// A series needs to match one of them. Without any, all series match.
    pub(super) selectors: Vec<Vec<Matcher>>,
    pub(super) range: TimeRange,
}

/// Receives each series once, in label order. Returns the number of samples that it used.
pub(super) type Each<'a> = dyn FnMut(&[(&str, &str)], &SampleColumns) -> Result<usize> + 'a;

/// What was read of a data directory.
#[derive(Default)]
pub(super) struct Visited {
    pub(super) damage: DamageReport,
    /// What became of its samples. Those that were used are kept.
    pub(super) totals: SampleTotals,
}

/// Calls `each` for every selected series with samples. Damaged data is recorded and skipped.
///
/// # Errors
/// If the directory cannot be read, or the error of `each`.
pub(super) fn visit(
    path: &Path,
    sandbox: Option<&Path>,
    selection: &Selection,
    each: &mut Each<'_>,
) -> Result<Visited> {
    match owner(path)? {
        Owner::Prometheus => read_prometheus(path, sandbox, selection, each),
        Owner::Varve => {
            let store = OfflineDb::open(path, Some(selection.range))?;
            let mut totals = store.losses();
            read_varve(&store.db, selection, &mut totals, each)?;
            Ok(Visited {
                damage: store.damage,
                totals,
            })
        }
    }
}

fn read_prometheus(
    path: &Path,
    sandbox: Option<&Path>,
    selection: &Selection,
    each: &mut Each<'_>,
) -> Result<Visited> {
    let scratch = ScratchDir::create(sandbox)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let report =
        recover(&fs, path, scratch.path(), &default_options(4), &|_| {}).context("read the WAL")?;
    let mut damage = report.damage;
    // What the recovery wrote is read from its blocks.
    let mut totals = report.totals;
    let n_recovered = std::mem::take(&mut totals.n_kept);
    totals.n_found -= n_recovered;
    let mut blocks = open_blocks(path, &mut totals, &mut damage)?;
    blocks.extend(open_blocks(scratch.path(), &mut totals, &mut damage)?);

    let mut merged = MergedBlocks::new(blocks.iter().map(|(_, block)| block), &mut damage);
    let mut columns = SampleColumns::default();
    let mut read = SampleTotals::default();
    while let Some(series) = merged.next(&mut damage) {
        if !selection.matches(series.labels()) {
            continue;
        }
        columns.clear();
        series.read(selection.range, &mut columns, &mut read, &mut damage);
        if columns.is_empty() {
            continue;
        }
        let n_used = each(series.labels(), &columns)?;
        read.n_kept += n_used as u64;
        read.n_filtered += (columns.len() - n_used) as u64;
    }

    // The other samples of the blocks were not selected, or could not be read.
    read.n_found = 0;
    totals.append(&read);
    // The description of a block may have no statistics.
    totals.n_found += totals.n_unaccounted().min(0).unsigned_abs();
    let n_others = totals.n_unaccounted().unsigned_abs();
    if selection.is_all() {
        totals.lose(IN_DAMAGED_BLOCKS, n_others);
    } else {
        totals.n_filtered += n_others;
        if damage.n_damaged() > 0 {
            totals.lose_unknown(IN_DAMAGED_BLOCKS);
        }
    }
    Ok(Visited { damage, totals })
}

fn read_varve(
    db: &Db,
    selection: &Selection,
    totals: &mut SampleTotals,
    each: &mut Each<'_>,
) -> Result<()> {
    // A single selector uses the index. With several, all series are read, so that each comes once.
    let matchers = if let [matchers] = &selection.selectors[..] {
        &matchers[..]
    } else {
        &[]
    };
    let mut columns = SampleColumns::default();
    for series in db.select(&ReadContext::unbounded(), matchers, selection.range)? {
        let series = series?;
        let labels: Vec<_> = series.labels().iter().collect();
        if !selection.matches(&labels) {
            continue;
        }
        columns.clear();
        series.read(&mut columns)?;
        if columns.is_empty() {
            continue;
        }
        let n_used = each(&labels, &columns)?;
        totals.n_found += columns.len() as u64;
        totals.n_kept += n_used as u64;
        totals.n_filtered += (columns.len() - n_used) as u64;
    }
    Ok(())
}

impl Selection {
    /// Returns `true` if all samples are selected.
    fn is_all(&self) -> bool {
        self.selectors.is_empty() && self.range == TimeRange::ALL
    }

    fn matches(&self, labels: &[(&str, &str)]) -> bool {
        self.selectors.is_empty()
            || self
                .selectors
                .iter()
                .any(|matchers| matches(matchers, labels))
    }
}
