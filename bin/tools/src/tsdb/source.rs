//! A data directory of Prometheus or Varve as a stream of series.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_env::damage::DamageReport;
use varve_env::{Fs, ReadOnlyFs, RealFs};
use varve_model::{Matcher, SampleColumns, TimeRange};
use varve_prometheus::block::{BlockReader, MergedBlocks};
use varve_prometheus::recover::recover;
use varve_system::machine;
use varve_tsdb::stats::BlockSummary;
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
    /// Opens a data directory.
    ///
    /// # Errors
    /// If it does not exist, is open elsewhere, or cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self> {
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
                    .with_context(|| format!("open data directory {path:?}"));
            }
            Some(Err(TryLockError::Error(error))) => {
                return Err(error).with_context(|| format!("lock {lock_path:?}"));
            }
        }
        let db = open_varve(path, Arc::new(ReadOnlyFs(Arc::new(RealFs))))?;
        let damage = varve_damage(&db, path)?;
        Ok(Self {
            db,
            damage,
            _lock: lock,
        })
    }
}

/// Returns the damage of WAL and blocks of an open data directory, before a flush removes the WAL.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn varve_damage(db: &Db, path: &Path) -> Result<DamageReport> {
    let (_, mut damage) = BlockSummary::check(path, false)?;
    if db.stats().replayed.is_damaged() {
        damage.append(wal_damage(path)?);
    }
    Ok(damage)
}

/// Opens a data directory of Varve, without background tasks. The store itself would create a new
/// one in any directory.
///
/// # Errors
/// If it does not exist, is not Varve's, is open elsewhere, or cannot be read.
pub(super) fn open_varve(path: &Path, fs: Arc<dyn Fs>) -> Result<Db> {
    ensure_varve(path)?;
    let options = Options {
        wal_replay_concurrency: machine::cores(),
        background: false,
        fs,
        ..Options::default()
    };
    Db::open(path, options).with_context(|| format!("open data directory {path:?}"))
}

/// Opens the blocks of a Prometheus directory, in ascending order of time.
///
/// # Errors
/// If the directory cannot be listed or a block cannot be opened.
pub(super) fn open_blocks(
    path: &Path,
    damage: &mut DamageReport,
) -> Result<Vec<(PathBuf, BlockReader)>> {
    let mut blocks = Vec::new();
    for dir in BlockReader::list(&RealFs, path).context("list the blocks")? {
        let block = BlockReader::open(&RealFs, &dir, damage)
            .with_context(|| format!("open the block {dir:?}"))?;
        blocks.push((dir, block));
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

/// Receives each series once, in label order.
pub(super) type Each<'a> = dyn FnMut(&[(&str, &str)], &SampleColumns) -> Result<()> + 'a;

/// Calls `each` for every selected series with samples. Damaged data is recorded and skipped.
///
/// # Errors
/// If the directory cannot be read, or the error of `each`.
pub(super) fn visit(
    path: &Path,
    sandbox: Option<&Path>,
    selection: &Selection,
    each: &mut Each<'_>,
) -> Result<DamageReport> {
    match owner(path)? {
        Owner::Prometheus => read_prometheus(path, sandbox, selection, each),
        Owner::Varve => {
            let store = OfflineDb::open(path)?;
            read_varve(&store.db, selection, each).map(|()| store.damage)
        }
    }
}

fn read_prometheus(
    path: &Path,
    sandbox: Option<&Path>,
    selection: &Selection,
    each: &mut Each<'_>,
) -> Result<DamageReport> {
    let scratch = ScratchDir::create(sandbox)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let report =
        recover(&fs, path, scratch.path(), &default_options(4), &|_| {}).context("read the WAL")?;
    let mut damage = report.damage;
    let mut blocks = open_blocks(path, &mut damage)?;
    blocks.extend(open_blocks(scratch.path(), &mut damage)?);
    let mut merged = MergedBlocks::new(blocks.iter().map(|(_, block)| block), &mut damage);
    let mut columns = SampleColumns::default();
    while let Some(series) = merged.next(&mut damage) {
        if !selection.matches(series.labels()) {
            continue;
        }
        columns.clear();
        series.read(selection.range, &mut columns, &mut damage);
        if !columns.is_empty() {
            each(series.labels(), &columns)?;
        }
    }
    Ok(damage)
}

fn read_varve(db: &Db, selection: &Selection, each: &mut Each<'_>) -> Result<()> {
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
        if !columns.is_empty() {
            each(&labels, &columns)?;
        }
    }
    Ok(())
}

impl Selection {
    fn matches(&self, labels: &[(&str, &str)]) -> bool {
        self.selectors.is_empty()
            || self
                .selectors
                .iter()
                .any(|matchers| matches(matchers, labels))
    }
}
