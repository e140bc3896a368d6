//! The file of a usage record, docs/format/usage.md, version 1.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::record::{
    ASKERS_MAX, Asker, Entry, LABEL_SIZE_MAX, LABELS_MAX, METRICS_MAX, REQUESTER_TEXT_MAX, REQUESTERS_MAX, Record,
    Requester, SELECTORS_MAX, TEXT_SIZE_MAX,
};

const MAGIC: &[u8; 4] = b"VUSE";
const VERSION: u8 = 1;
const VERSION_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 5;
const CHECKSUM_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = 12;
/// The largest file that is read, far more than a record can need.
const FILE_SIZE_MAX: u64 = 256 << 20;

/// Why there is no record.
#[derive(Debug)]
pub(super) enum ReadError {
    Missing,
    /// Of this version.
    Newer(u8),
    Unreadable(String),
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Option<Record>, ReadError> {
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => ReadError::Missing,
        _ => ReadError::Unreadable(error.to_string()),
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        return Err(ReadError::Unreadable(format!("it has more than {FILE_SIZE_MAX} bytes")));
    }
    decode(&bytes).map(Some)
}

/// Replaces the file, so that at any time the old or the new one is there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let folder = path.parent().expect("the file lies in the data directory");
    File::open(folder)?.sync_all()
}

/// Returns the bytes of the file.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&record.since_ms.to_le_bytes());
    bytes.extend_from_slice(&record.n_forgotten.to_le_bytes());
    let tables = [&record.metrics, &record.selectors];
    let askers = tables.iter().flat_map(|table| table.entries.values()).flat_map(|entry| &entry.askers);
    let requesters: BTreeSet<&Requester> = askers.map(|asker| &*asker.who).collect();
    put_len(&mut bytes, requesters.len());
    for who in &requesters {
        for text in [&who.user_agent, &who.dashboard, &who.panel, &who.rule] {
            put_text(&mut bytes, text);
        }
    }
    let numbers: HashMap<&Requester, usize> = requesters.iter().enumerate().map(|(idx, who)| (*who, idx)).collect();
    for table in tables {
        put_len(&mut bytes, table.entries.len());
        table.entries.values().for_each(|entry| put_entry(&mut bytes, entry, &numbers));
    }
    let checksum = crc32c::crc32c(&bytes[PAYLOAD_OFFSET..]);
    bytes[CHECKSUM_OFFSET..PAYLOAD_OFFSET].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn put_entry(bytes: &mut Vec<u8>, entry: &Entry, numbers: &HashMap<&Requester, usize>) {
    put_text(bytes, &entry.text);
    bytes.extend_from_slice(&entry.n_queries.to_le_bytes());
    bytes.extend_from_slice(&entry.last_ms.to_le_bytes());
    bytes.push(u8::from(entry.all_labels));
    for labels in [&entry.matched, &entry.grouped] {
        put_len(bytes, labels.len());
        labels.iter().for_each(|name| put_text(bytes, name));
    }
    put_len(bytes, entry.askers.len());
    for asker in &entry.askers {
        put_len(bytes, numbers[&*asker.who]);
        bytes.extend_from_slice(&asker.last_ms.to_le_bytes());
        bytes.extend_from_slice(&asker.n_queries.to_le_bytes());
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

fn decode(bytes: &[u8]) -> Result<Record, ReadError> {
    let damaged = |reason: &str| ReadError::Unreadable(reason.to_owned());
    if bytes.get(..VERSION_OFFSET) != Some(MAGIC) {
        return Err(damaged("it does not begin as a usage record"));
    }
    match bytes.get(VERSION_OFFSET) {
        Some(&VERSION) => {}
        Some(&version) if version > VERSION => return Err(ReadError::Newer(version)),
        _ => return Err(damaged("its version is unknown")),
    }
    let reserved = bytes.get(FLAGS_OFFSET..CHECKSUM_OFFSET);
    let checksum = bytes.get(CHECKSUM_OFFSET..PAYLOAD_OFFSET);
    let (Some([0, 0, 0]), Some(checksum)) = (reserved, checksum) else { return Err(damaged("its head is damaged")) };
    let payload = &bytes[PAYLOAD_OFFSET..];
    if crc32c::crc32c(payload).to_le_bytes() != checksum {
        return Err(damaged("its checksum is wrong"));
    }
    let mut cursor = Cursor(payload);
    let record = cursor.record().ok_or_else(|| damaged("it holds what no record can"))?;
    if cursor.0.is_empty() { Ok(record) } else { Err(damaged("there is more than a record")) }
}

/// The bytes that are still to be read; every read is `None` past their end or beyond a bound.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn record(&mut self) -> Option<Record> {
        let mut record = Record::new(self.i64()?);
        record.n_forgotten = self.u64()?;
        let mut requesters = Vec::new();
        for _ in 0..self.len(REQUESTERS_MAX + 1)? {
            let mut text = || self.text(REQUESTER_TEXT_MAX);
            let who = Requester { user_agent: text()?, dashboard: text()?, panel: text()?, rule: text()? };
            requesters.push(record.requester(&who));
        }
        for _ in 0..self.len(METRICS_MAX)? {
            let entry = self.entry(&requesters)?;
            record.n_forgotten += record.metrics.insert(entry);
        }
        for _ in 0..self.len(SELECTORS_MAX)? {
            let entry = self.entry(&requesters)?;
            record.n_forgotten += record.selectors.insert(entry);
        }
        Some(record)
    }

    fn entry(&mut self, requesters: &[Arc<Requester>]) -> Option<Entry> {
        let mut entry =
            Entry { text: self.text(TEXT_SIZE_MAX)?, n_queries: self.u64()?, last_ms: self.i64()?, ..Entry::default() };
        entry.all_labels = match self.take::<1>()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        entry.matched = self.labels()?;
        entry.grouped = self.labels()?;
        for _ in 0..self.len(ASKERS_MAX)? {
            let who = Arc::clone(requesters.get(self.len(REQUESTERS_MAX)?)?);
            entry.askers.push(Asker { who, last_ms: self.i64()?, n_queries: self.u64()? });
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
    use super::super::record::Use;
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        let mut record = Record::new(7);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let used = |text: &str, is_metric| Use {
            text: text.to_owned(),
            is_metric,
            matched: names(&["x"]),
            grouped: names(&["y", "é"]),
            all_labels: is_metric,
        };
        let who = Requester { user_agent: "Grafana".into(), panel: "2".into(), ..Requester::default() };
        record.note(&who, &[used("a", true), used("{b=\"c\"}", false)], 5);
        record.note(&Requester::default(), &[used("a", true)], 6);
        record
    }

    /// Writes the checksum that damage to the payload made wrong.
    fn seal(bytes: &mut [u8]) {
        let checksum = crc32c::crc32c(&bytes[PAYLOAD_OFFSET..]);
        bytes[CHECKSUM_OFFSET..PAYLOAD_OFFSET].copy_from_slice(&checksum.to_le_bytes());
    }

    #[test]
    fn a_record_comes_back() {
        let record = record();
        assert_eq!(decode(&encode(&record)).unwrap().snapshot(), record.snapshot());
        let empty = Record::new(-1);
        assert_eq!(decode(&encode(&empty)).unwrap().snapshot(), empty.snapshot());
    }

    #[test]
    fn any_cut_and_any_flipped_byte_is_refused() {
        let bytes = encode(&record());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "{at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            assert!(decode(&flipped).is_err(), "{at}");
        }
        let mut longer = bytes;
        longer.push(0);
        seal(&mut longer);
        assert!(decode(&longer).is_err());
    }

    proptest! {
        #[test]
        fn damage_under_a_right_checksum_does_no_harm(at in 0usize..200, byte: u8, cut in 0usize..200) {
            let mut bytes = encode(&record());
            let at = PAYLOAD_OFFSET + at % (bytes.len() - PAYLOAD_OFFSET);
            bytes[at] = byte;
            bytes.truncate((bytes.len() - cut % 64).max(PAYLOAD_OFFSET));
            seal(&mut bytes);
            if let Ok(record) = decode(&bytes) {
                prop_assert!(decode(&encode(&record)).is_ok());
            }
        }
    }
}
