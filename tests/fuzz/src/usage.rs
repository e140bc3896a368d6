//! The usage record. Its decoder belongs to the binary, which no crate can link: the files are compiled into this one.

#[path = "../../../bin/server/usage/file.rs"]
#[expect(dead_code, reason = "only the binary reads and replaces the file")]
mod file;
#[path = "../../../bin/server/usage/record.rs"]
#[expect(dead_code, reason = "only the binary prints a record")]
mod record;

/// A constant that the record imports from its parent module in the binary.
const TOOLS_AGENT: &str = "varve-tools";

/// Decodes the payload of a usage record. A decoded record is encoded and decoded again, to the same record.
pub fn usage_record(input: &[u8]) {
    let Some(record) = file::decode(input) else { return };
    let again = file::decode(&file::encode(&record)).expect("what was decoded is encoded");
    assert_eq!(again.snapshot(), record.snapshot());
}

/// Returns the payloads of small records.
#[cfg(test)]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut record = record::Record::new(7);
    let empty = file::encode(&record);
    for (i, text) in ["up", "a", "{b=\"c\"}"].into_iter().enumerate() {
        let who = record::Requester { user_agent: text.into(), ..record::Requester::default() };
        let names = |of: &str| vec![of.to_owned(), "x".to_owned()];
        let (matched, grouped, is_metric) = (names("job"), names("le"), i < 2);
        let used = record::Use { text: text.to_owned(), is_metric, matched, grouped, all_labels: i == 1 };
        record.note(&who, &[used], 5);
    }
    vec![empty, file::encode(&record)]
}
