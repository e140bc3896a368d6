//! Parser of the exemplars of a write request.
//!
//! Rejected exemplars are counted. As in Prometheus, they do not make the response a 400, except for out-of-order
//! exemplars in remote write 2.0. An exemplar never creates a series: its series must be in memory, or have a sample in
//! the same request.

use std::cmp::Ordering;

use varve_tsdb::Labels;
use varve_tsdb::exemplars::Exemplar;

use crate::batch::{DecodedBatch, ExemplarEntry};
use crate::remote_write::{label_pairs, v1};

/// Compares two exemplars of a series by time, value and labels: the order in which the store accepts them.
pub(crate) fn compare(a: &Exemplar, b: &Exemplar) -> Ordering {
    let by_value = || a.value.total_cmp(&b.value).then_with(|| a.labels.cmp(&b.labels));
    a.timestamp_ms.cmp(&b.timestamp_ms).then_with(by_value)
}

/// Parses an exemplar. Returns `None` if its labels are invalid.
pub(crate) fn parse(message: &[u8], batch: &DecodedBatch, entry: &ExemplarEntry) -> Option<Exemplar> {
    let mut pairs = Vec::new();
    for (name, value) in label_pairs(batch, message, entry.fields) {
        pairs.push((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?));
    }
    let labels = Labels::from_unsorted(&mut pairs).ok()?;
    let sample = v1::exemplar_sample(message, entry.fields);
    Some(Exemplar { labels, value: sample.value, timestamp_ms: sample.timestamp_ms })
}
