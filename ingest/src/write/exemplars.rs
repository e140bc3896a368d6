//! Parser of the exemplars of a write request, and their order within a series.

use std::cmp::Ordering;

use varve_model::{Exemplar, Labels};

use crate::batch::{DecodedBatch, ExemplarEntry};
use crate::sources::remote_write::{label_pairs, v1};

/// An exemplar of a request.
#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    pub(crate) exemplar: Exemplar,
    /// The labels as sent, with those that are empty, ascending by name.
    labels: Vec<(&'a str, &'a str)>,
}

/// Compares two exemplars of a series by time, value and labels as sent: the order in which the
/// store accepts them. As in Prometheus, empty labels count.
pub(crate) fn compare(a: &Parsed<'_>, b: &Parsed<'_>) -> Ordering {
    a.exemplar
        .timestamp_ms
        .cmp(&b.exemplar.timestamp_ms)
        .then_with(|| a.exemplar.value.total_cmp(&b.exemplar.value))
        .then_with(|| a.labels.cmp(&b.labels))
}

/// Parses an exemplar. Returns `None` if its labels are invalid.
pub(crate) fn parse<'a>(
    message: &'a [u8],
    batch: &'a DecodedBatch,
    entry: &ExemplarEntry,
) -> Option<Parsed<'a>> {
    let mut labels = Vec::new();
    for (name, value) in label_pairs(batch, message, entry.fields) {
        labels.push((
            std::str::from_utf8(name).ok()?,
            std::str::from_utf8(value).ok()?,
        ));
    }
    let stored = Labels::from_unsorted(&mut labels).ok()?;
    let sample = v1::exemplar_sample(message, entry.fields);
    Some(Parsed {
        exemplar: Exemplar {
            labels: stored,
            value: sample.value,
            timestamp_ms: sample.timestamp_ms,
        },
        labels,
    })
}
