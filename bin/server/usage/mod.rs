//! The usage record: which metrics queries used, by which labels, who sent the queries, and when last.
//!
//! Filled by [`Store`](super::store::Store) for queries and metadata requests, and read by /api/v1/status/usage. It is
//! saved in the file `usage` of the data directory (docs/format/usage.md) once a minute and when the server stops. A
//! crash loses at most a minute.
//!
//! Invariants
//! 1. The record is bounded ([`record::SIZE_MAX`]). The least recently used entries are evicted and counted.
//! 2. A damaged file is renamed and a new record started. A file of a newer version stays unchanged.
//! 3. A use that cannot be recorded never fails a request.
//!
//! Threads: one lock, held for a lookup.

mod file;
pub(crate) mod query_breaker;
mod record;
pub(crate) mod top_queries;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_query::promql::print_matchers;
use varve_query::usage::{LabelSet, SelectorUse};
use varve_tsdb::fs::{Clock, RealFs, StateFileError, SystemClock};
use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{MatchOp, Matcher};

pub(crate) use record::{Entry, Requester, Snapshot, UsageStats};
use record::{Record, Use};

/// The user agent of Varve's own tools: they read every metric, which does not count as a use.
pub(crate) const TOOLS_AGENT: &str = "varve-tools";

/// The record of one data directory.
#[derive(Debug)]
pub(crate) struct Usage {
    record: Mutex<Record>,
    /// The file. `None` if the existing one must stay unchanged.
    path: Option<PathBuf>,
    is_changed: AtomicBool,
}

impl Usage {
    /// Reads the record of an existing data directory, or starts a new one.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let path = data_dir.join("usage");
        let read = file::FILE.read(&RealFs, &path).and_then(|payload| {
            let decode = |payload: Vec<u8>| {
                file::decode(&payload).ok_or_else(|| StateFileError::damaged("it is not a valid record"))
            };
            payload.map(decode).transpose()
        });
        let (record, path) = match read {
            Ok(record) => (record, Some(path)),
            Err(StateFileError::Newer(version)) => {
                tracing::warn!(
                    version,
                    "The usage record is of a newer version; it stays unchanged and usage is not saved"
                );
                (None, None)
            }
            Err(StateFileError::Unreadable(reason)) => {
                tracing::error!(reason, "The usage record cannot be read; it stays unchanged and usage is not saved");
                (None, None)
            }
            Err(StateFileError::Damaged(reason)) => {
                tracing::error!(reason, "The usage record is damaged; it is renamed and a new one started");
                let aside = std::fs::rename(&path, path.with_extension("damaged"));
                (None, aside.is_ok().then_some(path))
            }
        };
        let record = record.unwrap_or_else(|| Record::new(SystemClock.now_ms()));
        Self { record: Mutex::new(record), path, is_changed: AtomicBool::new(false) }
    }

    /// Records the uses of a query or metadata request.
    pub(crate) fn note(&self, who: &Requester, selectors: &[SelectorUse]) {
        let uses: Vec<Use> = selectors.iter().flat_map(uses).collect();
        self.record.lock().note(who, &uses, SystemClock.now_ms());
        self.is_changed.store(true, Ordering::Release);
    }

    /// Returns a copy of the record.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.record.lock().snapshot()
    }

    /// Returns the size of the record.
    pub(crate) fn stats(&self) -> UsageStats {
        self.record.lock().stats()
    }

    /// Writes the record to its file, if it has changed. Blocks.
    ///
    /// # Errors
    /// If it cannot be written. The old file remains.
    pub(crate) fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if !self.is_changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let payload = file::encode(&self.record.lock());
        file::FILE.replace(&RealFs, path, &payload).inspect_err(|_| self.is_changed.store(true, Ordering::Release))
    }
}

/// Returns the uses of a selector: of each metric that it names, or of the selector itself if it names none.
fn uses(used: &SelectorUse) -> Vec<Use> {
    let is_fixed = |matcher: &&Matcher| matcher.name() == METRIC_NAME;
    let names: Option<Vec<String>> = used.matchers.iter().filter(is_fixed).find_map(|matcher| match matcher.op() {
        MatchOp::Equal => Some(vec![matcher.value().to_owned()]),
        MatchOp::Regexp => matcher.regexp()?.literals().map(<[String]>::to_vec),
        MatchOp::NotEqual | MatchOp::NotRegexp => None,
    });
    let matched = || used.matchers.iter().map(Matcher::name).filter(|name| *name != METRIC_NAME).map(str::to_owned);
    let (grouped, all_labels) = match &used.labels {
        LabelSet::Only(names) => (names.iter().cloned().collect(), false),
        LabelSet::AllBut(_) => (Vec::new(), true),
    };
    let of = |text: String, is_metric: bool| Use {
        text,
        is_metric,
        matched: matched().collect(),
        grouped: grouped.clone(),
        all_labels,
    };
    match names {
        Some(names) => names.into_iter().filter(|name| !name.is_empty()).map(|name| of(name, true)).collect(),
        None => vec![of(print_matchers(&used.matchers), false)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_query::promql::{Features, parse};
    use varve_query::usage::of;

    fn grafana() -> Requester {
        Requester { user_agent: "Grafana/12".into(), dashboard: "d".into(), panel: "2".into(), rule: "".into() }
    }

    fn note(usage: &Usage, query: &str) {
        if let Ok(expr) = parse(query, &Features::default()) {
            usage.note(&grafana(), &of(&expr));
        }
    }

    /// Notes queries and returns `text labels` of each use.
    fn check(queries: &[&str], expect: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let usage = Usage::open(folder.path());
        for query in queries {
            note(&usage, query);
        }
        let print = |entry: &Entry| {
            let labels: Vec<_> = entry.matched.iter().chain(&entry.grouped).map(|name| &**name).collect();
            let all = if entry.all_labels { " all" } else { "" };
            format!("{} [{}]{all} {}", entry.text, labels.join(" "), entry.n_queries)
        };
        let snapshot = usage.snapshot();
        let mut found: Vec<_> = snapshot.metrics.iter().chain(&snapshot.selectors).map(print).collect();
        found.sort();
        assert_eq!(found, expect, "{queries:?}");
        assert!(snapshot.metrics.iter().all(|entry| entry.requesters[0].who.dashboard == "d".into()));
    }

    #[test]
    fn queries_use_metrics_by_labels() {
        check(&["sum by (x) (rate(a{y=\"1\"}[5m]))", "sum(a{z=\"1\"})"], &["a [y z x] 2"]);
        check(&["a"], &["a [] all 1"]);
        check(&["{__name__=~\"a|b\"} == 1"], &["a [] all 1", "b [] all 1"]);
        check(&["sum({__name__=~\"a.*\", x=\"1\"})"], &["{__name__=~\"a.*\", x=\"1\"} [x] 1"]);
        check(&["a / a"], &["a [] all 1"]);
        check(&["sum(", "1"], &[]);
    }

    #[test]
    fn the_record_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let usage = Usage::open(folder.path());
        note(&usage, "sum by (x) (a)");
        usage.save().unwrap();
        let before = usage.snapshot();
        let after = Usage::open(folder.path());
        assert_eq!(after.snapshot(), before);
        // Nothing has changed since, so nothing is written.
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        after.save().unwrap();
        assert!(!folder.path().join("usage").exists());
    }

    #[test]
    fn a_damaged_file_is_renamed_and_a_newer_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage");
        std::fs::write(&path, b"VUSE\x01damaged").unwrap();
        let usage = Usage::open(folder.path());
        note(&usage, "a");
        usage.save().unwrap();
        assert_eq!(std::fs::read(folder.path().join("usage.damaged")).unwrap(), b"VUSE\x01damaged");
        assert_eq!(Usage::open(folder.path()).snapshot().metrics.len(), 1);

        std::fs::write(&path, b"VUSE\x02and more").unwrap();
        let usage = Usage::open(folder.path());
        note(&usage, "a");
        usage.save().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"VUSE\x02and more");
    }
}
