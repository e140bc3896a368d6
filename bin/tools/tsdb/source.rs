//! A data directory of either kind as one stream of series.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use varve_query::promql::parse_selector;
use varve_tsdb::prometheus::block::{BlockReader, MergedBlocks};
use varve_tsdb::prometheus::fault::Faults;
use varve_tsdb::prometheus::inspect::is_prometheus_directory;
use varve_tsdb::prometheus::recover::{CONCURRENCY_MAX, RecoverOptions, recover};
use varve_tsdb::{Db, Fs, Matcher, Options, QueryContext, RealFs, SampleColumns, TimeRange};

use super::scratch::Scratch;
use crate::machine;

/// Whose a data directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Prometheus,
    Varve,
}

/// Tells whose a data directory is, by what is in it.
///
/// # Errors
/// If it is not there, or neither's.
pub(super) fn owner(path: &Path) -> Result<Owner> {
    if !path.is_dir() {
        bail!("data directory {path:?} does not exist");
    }
    if is_prometheus_directory(&RealFs, path) {
        Ok(Owner::Prometheus)
    } else if path.join("blocks").is_dir() && path.join("wal").is_dir() {
        Ok(Owner::Varve)
    } else {
        bail!("{path:?} is a data directory neither of Prometheus nor of Varve")
    }
}

/// Opens a data directory of Varve that no server has open.
///
/// # Errors
/// What opening it says.
pub(super) fn open_varve(path: &Path) -> Result<Db> {
    let options = Options { wal_replay_concurrency: machine::cores(), background: false, ..Options::default() };
    Db::open(path, options).with_context(|| format!("open data directory {path:?}"))
}

/// Parses a selector.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse_matchers(selector: &str) -> Result<Vec<Matcher>> {
    parse_selector(selector).map_err(|error| anyhow!("{selector:?}: {error}"))
}

/// Tells whether a label set matches.
pub(super) fn matches(matchers: &[Matcher], labels: &[(&str, &str)]) -> bool {
    let value = |name: &str| labels.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value);
    matchers.iter().all(|matcher| matcher.matches(value(matcher.name())))
}

/// Hands out the blocks of a Prometheus directory, ascending by time.
///
/// # Errors
/// If the directory cannot be listed, or one of the blocks not be opened.
pub(super) fn open_blocks(path: &Path, faults: &mut Faults) -> Result<Vec<(PathBuf, BlockReader)>> {
    let dirs = BlockReader::list(&RealFs, path).context("list the blocks")?;
    let open = |dir: PathBuf| {
        let block = BlockReader::open(&RealFs, &dir, faults).with_context(|| format!("open the block {dir:?}"))?;
        Ok((dir, block))
    };
    let mut blocks = dirs.into_iter().map(open).collect::<Result<Vec<_>>>()?;
    blocks.sort_by_key(|(_, block)| block.meta().min_ms);
    Ok(blocks)
}

/// What is asked of a directory.
pub(super) struct Selection {
    /// A series is chosen by any of them; all are without any.
    pub(super) selectors: Vec<Vec<Matcher>>,
    pub(super) range: TimeRange,
}

/// Who takes the series, in the order of labels, each once.
pub(super) type Each<'a> = dyn FnMut(&[(&str, &str)], &SampleColumns) -> Result<()> + 'a;

/// Hands out all series with samples that are asked for; damage is noted and left out.
///
/// # Errors
/// If the directory cannot be read, and what `each` says.
pub(super) fn for_each(path: &Path, sandbox: Option<&Path>, of: &Selection, each: &mut Each<'_>) -> Result<Faults> {
    match owner(path)? {
        Owner::Prometheus => of_prometheus(path, sandbox, of, each),
        Owner::Varve => of_varve(&open_varve(path)?, of, each).map(|()| Faults::default()),
    }
}

fn of_prometheus(path: &Path, sandbox: Option<&Path>, of: &Selection, each: &mut Each<'_>) -> Result<Faults> {
    let scratch = Scratch::create(sandbox)?;
    let options = RecoverOptions {
        memory_bytes: usize::try_from(machine::Memory::find().limit_bytes() / 4).unwrap_or(usize::MAX),
        concurrency: machine::cores().min(CONCURRENCY_MAX),
        ..RecoverOptions::default()
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let report = recover(&fs, path, scratch.path(), &options, &|_| {}).context("read the log")?;
    let mut faults = report.faults;
    let mut blocks = open_blocks(path, &mut faults)?;
    blocks.extend(open_blocks(scratch.path(), &mut faults)?);
    let mut merged = MergedBlocks::new(blocks.iter().map(|(_, block)| block), &mut faults);
    let mut columns = SampleColumns::default();
    while let Some(series) = merged.next(&mut faults) {
        if !of.chooses(series.labels()) {
            continue;
        }
        columns.clear();
        series.read(of.range, &mut columns, &mut faults);
        if !columns.is_empty() {
            each(series.labels(), &columns)?;
        }
    }
    Ok(faults)
}

fn of_varve(db: &Db, of: &Selection, each: &mut Each<'_>) -> Result<()> {
    // One selector is looked up in the indexes; of several the series come once, and are chosen here.
    let matchers = if let [matchers] = &of.selectors[..] { &matchers[..] } else { &[] };
    let mut columns = SampleColumns::default();
    for series in db.select(&QueryContext::unbounded(), matchers, of.range)? {
        let series = series?;
        let labels: Vec<_> = series.labels().iter().collect();
        if !of.chooses(&labels) {
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
    fn chooses(&self, labels: &[(&str, &str)]) -> bool {
        self.selectors.is_empty() || self.selectors.iter().any(|matchers| matches(matchers, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(owner(&dir.path().join("nowhere")).unwrap_err().to_string().contains("does not exist"));
        assert!(owner(dir.path()).unwrap_err().to_string().contains("neither of Prometheus nor of Varve"));
        drop(open_varve(dir.path()).unwrap());
        assert_eq!(owner(dir.path()).unwrap(), Owner::Varve);
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir(other.path().join("chunks_head")).unwrap();
        assert_eq!(owner(other.path()).unwrap(), Owner::Prometheus);
    }

    #[test]
    fn a_label_that_is_not_there_is_empty() {
        let labels = [("__name__", "up"), ("job", "a")];
        for (selector, expect) in [("up", true), ("{job!='a'}", false), ("up{x=''}", true), ("up{x!=''}", false)] {
            assert_eq!(matches(&parse_matchers(selector).unwrap(), &labels), expect, "{selector}");
        }
    }
}
