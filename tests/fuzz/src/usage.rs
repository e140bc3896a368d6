//! The usage record.

use std::path::Path;
use std::sync::Arc;

use varve_advise::usage::{Requester, Usage};
use varve_env::testing::MemFs;
use varve_env::{Fs, StateFileError};

const PATH: &str = "/usage";

/// Reads the input as the payload of a usage record, under a valid checksum. A record that was read
/// is written and read again, to the same record.
pub fn usage_record(input: &[u8]) {
    let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
    let head = [&b"VUSE\x01\0\0\0"[..], &crc32c::crc32c(input).to_le_bytes()].concat();
    fs.create(Path::new(PATH))
        .and_then(|file| file.append(&[&head, input].concat()))
        .expect("there is room");
    let (usage, found) = Usage::open(Arc::clone(&fs), PATH.into(), 0);
    assert!(
        matches!(found, Ok(()) | Err(StateFileError::Damaged(_))),
        "{found:?}"
    );
    // A record without a change is not written.
    usage.note(&Requester::default(), &[], 0);
    usage.save().expect("there is room");
    let (again, found) = Usage::open(fs, PATH.into(), 1);
    assert_eq!((again.snapshot(), found), (usage.snapshot(), Ok(())));
}

/// Returns the payloads of small records.
#[cfg(test)]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    use varve_promql::{Features, parse};

    let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
    let (usage, _) = Usage::open(Arc::clone(&fs), PATH.into(), 7);
    let mut seeds = Vec::new();
    for text in [
        "1",
        "sum by (le, x) (up{job=\"a\"})",
        "a",
        "count({b=\"c\"})",
    ] {
        let who = Requester {
            user_agent: text.into(),
            ..Requester::default()
        };
        let expr = parse(text, &Features::default()).expect("an expression");
        usage.note(&who, &varve_query::usage::of(&expr), 5);
        usage.save().expect("there is room");
        let file = fs
            .read(Path::new(PATH), 1 << 20)
            .expect("the file was written");
        seeds.push(file[12..].to_vec());
    }
    seeds
}
