//! Exemplars of a write request on their way into the store, and what became of them.
//!
//! What is refused is counted. As in Prometheus none costs the sender a 400, but for those that are out of order in remote
//! write 2.0. Series are not created for them; an exemplar goes to a series that the store has in memory, or that a sample of the same request has made.

use varve_tsdb::Labels;
use varve_tsdb::exemplars::Exemplar;

use crate::batch::{DecodedBatch, ExemplarEntry};
use crate::remote_write::{label_pairs, v1};

/// Parses an exemplar; `None` if its labels are none.
pub(crate) fn parse(message: &[u8], batch: &DecodedBatch, entry: &ExemplarEntry) -> Option<Exemplar> {
    let mut pairs = Vec::new();
    for (name, value) in label_pairs(batch, message, entry.fields) {
        pairs.push((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?));
    }
    let labels = Labels::from_unsorted(&mut pairs).ok()?;
    let sample = v1::exemplar_sample(message, entry.fields);
    Some(Exemplar { labels, value: sample.value, timestamp_ms: sample.timestamp_ms })
}
