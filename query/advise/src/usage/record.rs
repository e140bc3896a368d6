//! The record in memory: a table of metrics, and one of selectors without a metric name.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// Approximate maximum size of a record.
pub(super) const SIZE_MAX: usize = 64 << 20;
/// Maximum number of metrics.
pub(super) const METRICS_MAX: usize = 100_000;
/// Maximum number of selectors without a metric name.
pub(super) const SELECTORS_MAX: usize = 1_000;
/// Maximum size of a metric name or selector. A longer one is only counted.
pub(super) const TEXT_SIZE_MAX: usize = 1_024;
/// Maximum number of labels of each kind of a metric. If there are more, all of its labels count as
/// used.
pub(super) const LABELS_MAX: usize = 64;
/// Maximum size of a label name. With a longer one, all labels count as used.
pub(super) const LABEL_SIZE_MAX: usize = 256;
/// Maximum number of requesters of a metric. The most recent ones are kept.
pub(super) const REQUESTERS_OF_METRIC_MAX: usize = 16;
/// Maximum number of requesters in a record.
pub(super) const REQUESTERS_MAX: usize = 4_096;
/// Maximum size of each header of a requester. Longer ones are truncated.
pub(super) const REQUESTER_TEXT_MAX: usize = 128;
/// Size of an entry besides its strings.
const ENTRY_SIZE: usize = 128;
/// A full table evicts one in this many of its entries.
const EVICTED_SHARE: usize = 16;

/// The sender of a query, by its headers. The record is kept for months, so it has no users: the
/// server's `QueryRequester`, which is shown with running queries, has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Requester {
    /// `User-Agent`
    pub user_agent: Box<str>,
    /// `X-Dashboard-Uid`
    pub dashboard: Box<str>,
    /// `X-Panel-Id`
    pub panel: Box<str>,
    /// `X-Rule-Uid`
    pub rule: Box<str>,
}

/// A use of a metric, or of a selector without a metric name.
#[derive(Debug, Clone)]
pub(super) struct Use {
    pub(super) text: String,
    pub(super) is_metric: bool,
    pub(super) matched: Vec<String>,
    pub(super) grouped: Vec<String>,
    pub(super) all_labels: bool,
}

/// The uses of a metric or selector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The metric name, or the selector.
    pub text: Box<str>,
    /// Number of queries.
    pub n_queries: u64,
    /// Time of the latest query.
    pub last_ms: i64,
    /// Labels of matchers.
    pub matched: BTreeSet<Box<str>>,
    /// Labels that results were grouped, joined or shown by.
    pub grouped: BTreeSet<Box<str>>,
    /// Whether all labels were used.
    pub all_labels: bool,
    /// Requesters, the most recent first.
    pub requesters: Vec<MetricRequester>,
}

/// A requester of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricRequester {
    /// The requester.
    pub who: Arc<Requester>,
    /// Time of its latest query.
    pub last_ms: i64,
    /// Number of its queries.
    pub n_queries: u64,
}

/// A copy of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Time at which the record was started.
    pub since_ms: i64,
    /// Entries that were evicted, or not added, for lack of space.
    pub n_evicted: u64,
    /// By name.
    pub metrics: Vec<Entry>,
    /// By text.
    pub selectors: Vec<Entry>,
}

/// The size of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageStats {
    /// Number of metrics and selectors.
    pub n_entries: u64,
    /// Approximate size in memory.
    pub size_bytes: u64,
    /// Entries that were evicted, or not added, for lack of space.
    pub n_evicted: u64,
}

/// The record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) since_ms: i64,
    pub(super) n_evicted: u64,
    pub(super) metrics: Table,
    pub(super) selectors: Table,
    requesters: HashSet<Arc<Requester>>,
}

/// Entries by text.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: HashMap<Box<str>, Entry>,
    len_max: usize,
    size_max: usize,
    size: usize,
}

impl Requester {
    /// Returns `true` for Varve's own tools.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        self.user_agent.starts_with(super::TOOLS_AGENT)
    }
}

impl fmt::Display for Requester {
    /// Prints the user agent and Grafana's headers: `Grafana/12 (dashboard x, panel 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user_agent)?;
        let parts = [
            ("dashboard", &self.dashboard),
            ("panel", &self.panel),
            ("rule", &self.rule),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(_, id)| !id.is_empty())
            .map(|(what, id)| format!("{what} {id}"))
            .collect();
        if parts.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", parts.join(", "))
        }
    }
}

impl Record {
    pub(super) fn new(since_ms: i64) -> Self {
        Self {
            since_ms,
            n_evicted: 0,
            metrics: Table::new(METRICS_MAX, SIZE_MAX),
            selectors: Table::new(SELECTORS_MAX, SELECTORS_MAX * 2 * TEXT_SIZE_MAX),
            requesters: HashSet::new(),
        }
    }

    /// Adds the uses of a query. Duplicates count once.
    pub(super) fn note(&mut self, who: &Requester, uses: &[Use], now_ms: i64) {
        let who = self.requester(who);
        let mut seen = HashSet::new();
        for used in uses {
            if used.text.len() > TEXT_SIZE_MAX {
                self.n_evicted = self.n_evicted.saturating_add(1);
                continue;
            }
            let is_first = seen.insert(&used.text);
            let table = if used.is_metric {
                &mut self.metrics
            } else {
                &mut self.selectors
            };
            self.n_evicted = self
                .n_evicted
                .saturating_add(table.note(used, &who, now_ms, is_first));
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            since_ms: self.since_ms,
            n_evicted: self.n_evicted,
            metrics: self.metrics.sorted(),
            selectors: self.selectors.sorted(),
        }
    }

    pub(super) fn stats(&self) -> UsageStats {
        let tables = [&self.metrics, &self.selectors];
        UsageStats {
            n_entries: tables.iter().map(|table| table.entries.len() as u64).sum(),
            size_bytes: tables.iter().map(|table| table.size as u64).sum(),
            n_evicted: self.n_evicted,
        }
    }

    /// Returns the shared copy of a requester, or an empty one if there are too many.
    pub(super) fn requester(&mut self, who: &Requester) -> Arc<Requester> {
        if let Some(known) = self.requesters.get(who) {
            return Arc::clone(known);
        }
        if self.requesters.len() >= REQUESTERS_MAX {
            self.requesters.retain(|who| Arc::strong_count(who) > 1);
        }
        let is_full = self.requesters.len() >= REQUESTERS_MAX;
        let who = Arc::new(if is_full {
            Requester::default()
        } else {
            who.clone()
        });
        if !is_full {
            self.requesters.insert(Arc::clone(&who));
        }
        who
    }
}

impl Table {
    fn new(len_max: usize, size_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            len_max,
            size_max,
            size: 0,
        }
    }

    /// Returns the number of evicted entries.
    fn note(&mut self, used: &Use, who: &Arc<Requester>, now_ms: i64, is_first: bool) -> u64 {
        let entry = self
            .entries
            .entry(used.text.as_str().into())
            .or_insert_with(|| {
                let entry = Entry {
                    text: used.text.as_str().into(),
                    ..Entry::default()
                };
                self.size += entry.size();
                entry
            });
        self.size -= entry.size();
        entry.note(used, who, now_ms, is_first);
        self.size += entry.size();
        self.evict()
    }

    /// Adds an entry of a file.
    pub(super) fn insert(&mut self, entry: Entry) -> u64 {
        self.size += entry.size();
        if let Some(replaced) = self.entries.insert(entry.text.clone(), entry) {
            self.size -= replaced.size();
        }
        self.evict()
    }

    /// Evicts the least recently used entries.
    fn evict(&mut self) -> u64 {
        if self.entries.len() <= self.len_max && self.size <= self.size_max {
            return 0;
        }
        let mut by_age: Vec<(i64, Box<str>)> = self
            .entries
            .values()
            .map(|entry| (entry.last_ms, entry.text.clone()))
            .collect();
        by_age.sort_unstable();
        by_age.truncate(by_age.len().div_ceil(EVICTED_SHARE));
        for (_, text) in &by_age {
            if let Some(entry) = self.entries.remove(text) {
                self.size -= entry.size();
            }
        }
        by_age.len() as u64
    }

    fn sorted(&self) -> Vec<Entry> {
        let mut entries: Vec<_> = self.entries.values().cloned().collect();
        entries.sort_by(|a, b| a.text.cmp(&b.text));
        entries
    }
}

impl Entry {
    /// Returns the approximate size of the entry.
    #[must_use]
    pub fn size(&self) -> usize {
        let labels: usize = self
            .matched
            .iter()
            .chain(&self.grouped)
            .map(|name| name.len() + 32)
            .sum();
        ENTRY_SIZE
            + 2 * self.text.len()
            + labels
            + self.requesters.len() * size_of::<MetricRequester>()
    }

    fn note(&mut self, used: &Use, who: &Arc<Requester>, now_ms: i64, is_first: bool) {
        self.last_ms = self.last_ms.max(now_ms);
        self.all_labels |= used.all_labels;
        for (names, labels) in [
            (&used.matched, &mut self.matched),
            (&used.grouped, &mut self.grouped),
        ] {
            for name in names {
                if labels.contains(name.as_str()) {
                    continue;
                }
                if name.len() > LABEL_SIZE_MAX || labels.len() == LABELS_MAX {
                    self.all_labels = true;
                } else {
                    labels.insert(name.as_str().into());
                }
            }
        }
        if is_first {
            // A file may have any contents.
            self.n_queries = self.n_queries.saturating_add(1);
            self.note_requester(who, now_ms);
        }
    }

    fn note_requester(&mut self, who: &Arc<Requester>, now_ms: i64) {
        let at = self
            .requesters
            .iter()
            .position(|requester| requester.who == *who);
        let n_queries = at.map_or(0, |at| self.requesters.remove(at).n_queries);
        self.requesters.truncate(REQUESTERS_OF_METRIC_MAX - 1);
        let n_queries = n_queries.saturating_add(1);
        self.requesters.insert(
            0,
            MetricRequester {
                who: Arc::clone(who),
                last_ms: now_ms,
                n_queries,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(text: &str, grouped: &[String]) -> Use {
        Use {
            text: text.to_owned(),
            is_metric: true,
            matched: Vec::new(),
            grouped: grouped.to_vec(),
            all_labels: false,
        }
    }

    fn who(agent: usize) -> Requester {
        Requester {
            user_agent: agent.to_string().into(),
            ..Requester::default()
        }
    }

    #[test]
    fn labels_and_requesters_are_bounded() {
        let mut record = Record::new(0);
        for i in 0..100 {
            record.note(&who(i), &[used("a", &[format!("l{i}")])], i as i64);
        }
        let entry = &record.snapshot().metrics[0];
        assert_eq!(
            (entry.grouped.len(), entry.all_labels, entry.n_queries),
            (LABELS_MAX, true, 100)
        );
        assert_eq!(
            (entry.requesters.len(), &*entry.requesters[0].who.user_agent),
            (REQUESTERS_OF_METRIC_MAX, "99")
        );
        record.note(&who(0), &[used("b", &["x".repeat(LABEL_SIZE_MAX + 1)])], 1);
        assert!(record.snapshot().metrics[1].all_labels);
        record.note(&who(0), &[used(&"x".repeat(TEXT_SIZE_MAX + 1), &[])], 1);
        assert_eq!((record.snapshot().metrics.len(), record.n_evicted), (2, 1));
    }

    #[test]
    fn the_least_recently_used_entries_are_evicted_first() {
        let mut table = Table::new(32, SIZE_MAX);
        let requester = Arc::new(who(1));
        let n_gone: u64 = (0..33)
            .map(|i| table.note(&used(&format!("m{i:02}"), &[]), &requester, i, true))
            .sum();
        let left: Vec<_> = table.sorted().into_iter().map(|entry| entry.text).collect();
        assert_eq!((n_gone, left.len(), &*left[0]), (3, 30, "m03"));
        assert_eq!(
            table.size,
            table.sorted().iter().map(Entry::size).sum::<usize>()
        );
        let mut small = Table::new(1_000, 10 * ENTRY_SIZE);
        let n_gone: u64 = (0..100)
            .map(|i| small.note(&used(&format!("m{i:02}"), &[]), &requester, i, true))
            .sum();
        assert_eq!(n_gone as usize + small.entries.len(), 100);
        assert!(small.size <= 10 * ENTRY_SIZE && !small.entries.is_empty());
    }

    #[test]
    fn requesters_are_bounded() {
        let mut record = Record::new(0);
        for i in 0..=REQUESTERS_MAX {
            record.note(
                &who(i),
                &[used(&format!("m{}", i / REQUESTERS_OF_METRIC_MAX), &[])],
                0,
            );
        }
        let last = &record.metrics.entries
            [format!("m{}", REQUESTERS_MAX / REQUESTERS_OF_METRIC_MAX).as_str()];
        assert_eq!(*last.requesters[0].who, Requester::default());
        assert_eq!(record.requesters.len(), REQUESTERS_MAX);
    }
}
