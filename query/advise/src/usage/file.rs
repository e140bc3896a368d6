//! The file of the usage record. Format: docs/format/usage.md, version 1.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use varve_env::StateFile;

use super::record::{
    Entry, LABEL_SIZE_MAX, LABELS_MAX, METRICS_MAX, MetricRequester, REQUESTER_TEXT_MAX,
    REQUESTERS_MAX, REQUESTERS_OF_METRIC_MAX, Record, Requester, SELECTORS_MAX, TEXT_SIZE_MAX,
};

/// The file format. The size limit is far above the maximum size of a record.
pub(super) const FILE: StateFile = StateFile {
    magic: *b"VUSE",
    version: 1,
    payload_size_max: (256 << 20) - 12,
};

/// Returns the payload of the file.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&record.since_ms.to_le_bytes());
    bytes.extend_from_slice(&record.n_evicted.to_le_bytes());
    let tables = [&record.metrics, &record.selectors];
    let all = tables
        .iter()
        .flat_map(|table| table.entries.values())
        .flat_map(|entry| &entry.requesters);
    let requesters: BTreeSet<&Requester> = all.map(|requester| &*requester.who).collect();
    put_len(&mut bytes, requesters.len());
    for who in &requesters {
        for text in [&who.user_agent, &who.dashboard, &who.panel, &who.rule] {
            put_text(&mut bytes, text);
        }
    }
    let numbers: HashMap<&Requester, usize> = requesters
        .iter()
        .enumerate()
        .map(|(idx, who)| (*who, idx))
        .collect();
    for table in tables {
        put_len(&mut bytes, table.entries.len());
        for entry in table.entries.values() {
            put_entry(&mut bytes, entry, &numbers);
        }
    }
    bytes
}

fn put_entry(bytes: &mut Vec<u8>, entry: &Entry, numbers: &HashMap<&Requester, usize>) {
    put_text(bytes, &entry.text);
    bytes.extend_from_slice(&entry.n_queries.to_le_bytes());
    bytes.extend_from_slice(&entry.last_ms.to_le_bytes());
    bytes.push(u8::from(entry.all_labels));
    for labels in [&entry.matched, &entry.grouped] {
        put_len(bytes, labels.len());
        for name in labels {
            put_text(bytes, name);
        }
    }
    put_len(bytes, entry.requesters.len());
    for requester in &entry.requesters {
        put_len(bytes, numbers[&*requester.who]);
        bytes.extend_from_slice(&requester.last_ms.to_le_bytes());
        bytes.extend_from_slice(&requester.n_queries.to_le_bytes());
    }
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("all lengths of a record are bounded");
    bytes.extend_from_slice(&len.to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_len(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

/// Decodes a payload. Returns `None` if it is not a valid record.
pub(super) fn decode(payload: &[u8]) -> Option<Record> {
    let mut cursor = Cursor(payload);
    let record = cursor.record()?;
    cursor.0.is_empty().then_some(record)
}

/// The remaining bytes. A read past their end or beyond a limit is `None`.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn record(&mut self) -> Option<Record> {
        let mut record = Record::new(self.i64()?);
        record.n_evicted = self.u64()?;
        let mut requesters = Vec::new();
        for _ in 0..self.len(REQUESTERS_MAX + 1)? {
            let who = Requester {
                user_agent: self.text(REQUESTER_TEXT_MAX)?,
                dashboard: self.text(REQUESTER_TEXT_MAX)?,
                panel: self.text(REQUESTER_TEXT_MAX)?,
                rule: self.text(REQUESTER_TEXT_MAX)?,
            };
            requesters.push(record.requester(&who));
        }
        for _ in 0..self.len(METRICS_MAX)? {
            let entry = self.entry(&requesters)?;
            record.n_evicted = record
                .n_evicted
                .saturating_add(record.metrics.insert(entry));
        }
        for _ in 0..self.len(SELECTORS_MAX)? {
            let entry = self.entry(&requesters)?;
            record.n_evicted = record
                .n_evicted
                .saturating_add(record.selectors.insert(entry));
        }
        Some(record)
    }

    fn entry(&mut self, requesters: &[Arc<Requester>]) -> Option<Entry> {
        let mut entry = Entry {
            text: self.text(TEXT_SIZE_MAX)?,
            n_queries: self.u64()?,
            last_ms: self.i64()?,
            ..Entry::default()
        };
        entry.all_labels = match self.take::<1>()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        entry.matched = self.labels()?;
        entry.grouped = self.labels()?;
        for _ in 0..self.len(REQUESTERS_OF_METRIC_MAX)? {
            let who = Arc::clone(requesters.get(self.len(REQUESTERS_MAX)?)?);
            entry.requesters.push(MetricRequester {
                who,
                last_ms: self.i64()?,
                n_queries: self.u64()?,
            });
        }
        Some(entry)
    }

    fn labels(&mut self) -> Option<BTreeSet<Box<str>>> {
        let n_labels = self.len(LABELS_MAX)?;
        (0..n_labels).map(|_| self.text(LABEL_SIZE_MAX)).collect()
    }

    fn text(&mut self, size_max: usize) -> Option<Box<str>> {
        let size = self.len(size_max)?;
        let (text, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.into())
    }

    fn len(&mut self, len_max: usize) -> Option<usize> {
        let len = usize::try_from(u32::from_le_bytes(self.take()?)).ok()?;
        (len <= len_max).then_some(len)
    }

    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take()?))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use varve_env::Fs;
    use varve_env::testing::{MemFs, assert_shown};

    use super::super::record::Use;
    use super::*;

    fn used(text: &str, is_metric: bool) -> Use {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Use {
            text: text.to_owned(),
            is_metric,
            matched: names(&["x"]),
            grouped: names(&["y", "é"]),
            all_labels: is_metric,
        }
    }

    fn record() -> Record {
        let mut record = Record::new(7);
        let who = Requester {
            user_agent: "Grafana".into(),
            panel: "2".into(),
            ..Requester::default()
        };
        record.note(&who, &[used("a", true), used("{b=\"c\"}", false)], 5);
        record.note(&Requester::default(), &[used("a", true)], 6);
        record
    }

    #[test]
    fn the_example_in_the_docs_equals_the_written_file() {
        let mut record = Record::new(1_763_683_200_000);
        let who = Requester {
            user_agent: "curl".into(),
            ..Requester::default()
        };
        let matched = vec!["job".to_owned()];
        let used = Use {
            text: "up".to_owned(),
            is_metric: true,
            matched,
            grouped: vec![],
            all_labels: false,
        };
        record.note(&who, &[used], 1_763_683_260_000);
        let fs = MemFs::new();
        FILE.replace(&fs, Path::new("/usage"), &encode(&record))
            .unwrap();
        let bytes = fs.read(Path::new("/usage"), 1 << 10).unwrap();
        assert_shown(include_str!("../../../../docs/format/usage.md"), &bytes);
        assert_eq!(
            decode(&encode(&record)).unwrap().snapshot(),
            record.snapshot()
        );
    }

    #[test]
    fn a_record_round_trips() {
        let record = record();
        assert_eq!(
            decode(&encode(&record)).unwrap().snapshot(),
            record.snapshot()
        );
        let empty = Record::new(-1);
        assert_eq!(
            decode(&encode(&empty)).unwrap().snapshot(),
            empty.snapshot()
        );
    }

    #[test]
    fn a_truncated_or_longer_payload_is_rejected() {
        let mut payload = encode(&record());
        for size in 0..payload.len() {
            assert!(decode(&payload[..size]).is_none(), "{size}");
        }
        payload.push(0);
        assert!(decode(&payload).is_none());
    }

    #[test]
    fn counts_saturate() {
        let mut full = record();
        full.n_evicted = u64::MAX;
        for entry in full.metrics.entries.values_mut() {
            entry.n_queries = u64::MAX;
            entry
                .requesters
                .iter_mut()
                .for_each(|requester| requester.n_queries = u64::MAX);
        }
        let mut read = decode(&encode(&full)).unwrap();
        let long = "x".repeat(TEXT_SIZE_MAX + 1);
        let used = |text: &str| Use {
            text: text.to_owned(),
            ..used("a", true)
        };
        read.note(&Requester::default(), &[used("a"), used(&long)], 8);
        let snapshot = read.snapshot();
        assert_eq!(
            (snapshot.n_evicted, snapshot.metrics[0].n_queries),
            (u64::MAX, u64::MAX)
        );
        assert_eq!(snapshot.metrics[0].requesters[0].n_queries, u64::MAX);
    }

    proptest! {
        #[test]
        fn a_damaged_payload_is_rejected_or_a_valid_record(at in 0usize..200, byte: u8, cut in 0usize..200) {
            let mut payload = encode(&record());
            let size = payload.len();
            payload[at % size] = byte;
            payload.truncate(size - cut % 64);
            if let Some(record) = decode(&payload) {
                prop_assert!(decode(&encode(&record)).is_some());
            }
        }
    }
}
