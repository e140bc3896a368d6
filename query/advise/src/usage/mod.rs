//! The usage record: which metrics queries used, by which labels, who sent the queries, and when
//! last.
//!
//! The server fills it for queries and metadata requests, and saves it in the file `usage` of the
//! data directory (docs/format/usage.md) once a minute and when it stops. A crash loses at most a
//! minute.
//!
//! Invariants
//! 1. The record is bounded ([`record::SIZE_MAX`]). The least recently used entries are evicted and
//!    counted.
//! 2. A damaged file is renamed and a new record started. A file of a newer version stays
//!    unchanged.
//! 3. A use that cannot be recorded never fails a request.
//!
//! Threads: one lock, held for a lookup.

mod file;
mod record;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_context::Charge;
use varve_env::{Error, Fs, StateFileError};
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};
use varve_promql::print_matchers;
use varve_query::usage::{LabelSet, SelectorUse};

pub use record::{Entry, MetricRequester, Requester, Snapshot, UsageStats};
use record::{Record, Use};

/// The user agent of Varve's own tools: they read every metric, which does not count as a use.
pub const TOOLS_AGENT: &str = "varve-tools";

/// The record of one data directory.
#[derive(Debug)]
pub struct Usage {
    record: Mutex<Record>,
    /// The file system and the path. `None` if the existing file must stay unchanged.
    location: Option<(Arc<dyn Fs>, PathBuf)>,
    is_changed: AtomicBool,
}

impl Usage {
    /// Reads the record in the file `path`, or starts a new one. Also returns why an existing file
    /// was not used.
    pub fn open(fs: Arc<dyn Fs>, path: PathBuf, now_ms: i64) -> (Self, Result<(), StateFileError>) {
        let loaded = file::FILE.load(&*fs, &path, file::decode);
        let location = loaded.is_replaceable().then_some((fs, path));
        let record = Mutex::new(loaded.state.unwrap_or_else(|| Record::new(now_ms)));
        (
            Self {
                record,
                location,
                is_changed: AtomicBool::new(false),
            },
            loaded.found,
        )
    }

    /// Records the uses of a query or metadata request.
    pub fn note(&self, who: &Requester, selectors: &[SelectorUse], now_ms: i64) {
        let uses: Vec<Use> = selectors.iter().flat_map(uses).collect();
        self.record.lock().note(who, &uses, now_ms);
        self.is_changed.store(true, Ordering::Release);
    }

    /// Empties the record, which begins again at `now_ms`, and saves it. Returns the number of
    /// forgotten metrics and selectors. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written. The record in memory is empty, and [`Usage::save`] tries
    /// again.
    pub fn forget(&self, now_ms: i64) -> Result<u64, Error> {
        let forgotten = std::mem::replace(&mut *self.record.lock(), Record::new(now_ms));
        self.is_changed.store(true, Ordering::Release);
        self.save()?;
        Ok(forgotten.stats().n_entries)
    }

    /// Returns a copy of the record, which is charged to `charge` before it is made.
    ///
    /// # Errors
    /// If memory is short.
    pub fn snapshot(&self, charge: &mut Charge) -> varve_context::Result<Snapshot> {
        let record = self.record.lock();
        let size = record.stats().size_bytes;
        charge.grow_without_waiting(usize::try_from(size).unwrap_or(usize::MAX))?;
        Ok(record.snapshot())
    }

    /// Returns the size of the record.
    #[must_use]
    pub fn stats(&self) -> UsageStats {
        self.record.lock().stats()
    }

    /// Writes the record to its file, if it has changed. Blocks.
    ///
    /// # Errors
    /// If it cannot be written. The old file remains.
    pub fn save(&self) -> Result<(), Error> {
        let Some((fs, path)) = &self.location else {
            return Ok(());
        };
        if !self.is_changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let payload = file::encode(&self.record.lock());
        file::FILE
            .replace(&**fs, path, &payload)
            .inspect_err(|_| self.is_changed.store(true, Ordering::Release))
    }
}

/// Returns the uses of a selector: of each metric that it names, or of the selector itself if it
/// names none.
fn uses(used: &SelectorUse) -> Vec<Use> {
    let names: Option<Vec<String>> = used
        .matchers
        .iter()
        .filter(|matcher| matcher.name() == METRIC_NAME)
        .find_map(|matcher| match matcher.op() {
            MatchOp::Equal => Some(vec![matcher.value().to_owned()]),
            MatchOp::Regexp => matcher.regexp()?.literals().map(<[String]>::to_vec),
            MatchOp::NotEqual | MatchOp::NotRegexp => None,
        });
    let matched: Vec<String> = used
        .matchers
        .iter()
        .map(Matcher::name)
        .filter(|name| *name != METRIC_NAME)
        .map(str::to_owned)
        .collect();
    let (grouped, all_labels) = match &used.labels {
        LabelSet::Only(names) => (names.iter().cloned().collect(), false),
        LabelSet::AllBut(_) => (Vec::new(), true),
    };
    let Some(names) = names else {
        return vec![Use {
            text: print_matchers(&used.matchers),
            is_metric: false,
            matched,
            grouped,
            all_labels,
        }];
    };
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| Use {
            text: name,
            is_metric: true,
            matched: matched.clone(),
            grouped: grouped.clone(),
            all_labels,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    use varve_context::{Limit, MemoryBudget, QueryContext};
    use varve_env::RealFs;
    use varve_promql::{Features, parse};
    use varve_query::usage::of;
    use varve_tsdb::ReadContext;

    fn open(path: &Path) -> Usage {
        Usage::open(Arc::new(RealFs), path.to_owned(), 5).0
    }

    fn copy_of(usage: &Usage) -> Snapshot {
        let ctx = ReadContext::unbounded();
        usage.snapshot(&mut ctx.charge()).unwrap()
    }

    fn grafana() -> Requester {
        Requester {
            user_agent: "Grafana/12".into(),
            dashboard: "d".into(),
            panel: "2".into(),
            rule: "".into(),
        }
    }

    fn note(usage: &Usage, query: &str) {
        if let Ok(expr) = parse(query, &Features::default()) {
            usage.note(&grafana(), &of(&expr), 7);
        }
    }

    /// Notes queries and returns `text labels` of each use.
    fn check(queries: &[&str], expect: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let usage = open(&folder.path().join("usage"));
        for query in queries {
            note(&usage, query);
        }
        let print = |entry: &Entry| {
            let labels: Vec<_> = entry
                .matched
                .iter()
                .chain(&entry.grouped)
                .map(|name| &**name)
                .collect();
            let all = if entry.all_labels { " all" } else { "" };
            format!(
                "{} [{}]{all} {}",
                entry.text,
                labels.join(" "),
                entry.n_queries
            )
        };
        let snapshot = copy_of(&usage);
        let mut found: Vec<_> = snapshot
            .metrics
            .iter()
            .chain(&snapshot.selectors)
            .map(print)
            .collect();
        found.sort();
        assert_eq!(found, expect, "{queries:?}");
        assert!(
            snapshot
                .metrics
                .iter()
                .all(|entry| entry.requesters[0].who.dashboard == "d".into())
        );
    }

    #[test]
    fn queries_use_metrics_by_labels() {
        check(
            &["sum by (x) (rate(a{y=\"1\"}[5m]))", "sum(a{z=\"1\"})"],
            &["a [y z x] 2"],
        );
        check(&["a"], &["a [] all 1"]);
        check(&["{__name__=~\"a|b\"} == 1"], &["a [] all 1", "b [] all 1"]);
        check(
            &["sum({__name__=~\"a.*\", x=\"1\"})"],
            &["{__name__=~\"a.*\", x=\"1\"} [x] 1"],
        );
        check(&["a / a"], &["a [] all 1"]);
        check(&["sum(", "1"], &[]);
    }

    #[test]
    fn the_record_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let usage = open(&folder.path().join("usage"));
        note(&usage, "sum by (x) (a)");
        usage.save().unwrap();
        let before = copy_of(&usage);
        let after = open(&folder.path().join("usage"));
        assert_eq!(copy_of(&after), before);
        // Nothing has changed since, so nothing is written.
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        after.save().unwrap();
        assert!(!folder.path().join("usage").exists());
    }

    #[test]
    fn a_forgotten_record_is_empty_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage");
        let usage = open(&path);
        note(&usage, "a");
        note(&usage, "{x=\"1\"}");
        usage.save().unwrap();
        assert_eq!(usage.forget(9).unwrap(), 2);
        for record in [copy_of(&usage), copy_of(&open(&path))] {
            assert_eq!(record.since_ms, 9);
            assert!(record.metrics.is_empty() && record.selectors.is_empty());
        }
    }

    #[test]
    fn a_copy_is_charged_before_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let usage = open(&folder.path().join("usage"));
        note(&usage, &"m".repeat(1_000));
        let size = usize::try_from(usage.stats().size_bytes).unwrap();
        assert!(size > 1_000, "{size} bytes");
        for (memory, expect) in [(size, true), (size - 1, false)] {
            let memory = MemoryBudget::new(Limit::Other("memory"), memory);
            let ctx = QueryContext::new(Duration::from_secs(60), memory);
            let mut charge = ctx.charge();
            assert_eq!(usage.snapshot(&mut charge).is_ok(), expect);
            assert_eq!(charge.size(), if expect { size } else { 0 });
        }
    }

    #[test]
    fn a_damaged_file_is_renamed_and_a_newer_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage");
        std::fs::write(&path, b"VUSE\x01damaged").unwrap();
        let usage = open(&folder.path().join("usage"));
        note(&usage, "a");
        usage.save().unwrap();
        assert_eq!(
            std::fs::read(folder.path().join("usage.damaged")).unwrap(),
            b"VUSE\x01damaged"
        );
        assert_eq!(
            copy_of(&open(&folder.path().join("usage"))).metrics.len(),
            1
        );

        std::fs::write(&path, b"VUSE\x02and more").unwrap();
        let usage = open(&folder.path().join("usage"));
        note(&usage, "a");
        usage.save().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"VUSE\x02and more");
    }
}
