//! Values and labels of exemplars.

use super::message::{Exemplar, ExemplarNumber};
use super::value;

pub(super) fn check_exemplars(exemplars: &[Exemplar]) -> Result<(), String> {
    let without = exemplars.iter().any(|exemplar| exemplar.value.is_none());
    if without {
        Err("unsupported exemplar value type: Empty".to_owned())
    } else {
        Ok(())
    }
}

pub(super) fn exemplar_value(exemplar: &Exemplar) -> Option<f64> {
    exemplar.value.map(|value| match value {
        ExemplarNumber::Double(value) => value,
        ExemplarNumber::Int(value) => value as f64,
    })
}

/// Returns the sorted labels of an exemplar: trace and span, and all other attributes unless they
/// are too long in total.
pub(super) fn exemplar_labels(exemplar: &Exemplar) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for (name, id, size) in [
        ("trace_id", &exemplar.trace_id, TRACE_ID_SIZE),
        ("span_id", &exemplar.span_id, SPAN_ID_SIZE),
    ] {
        if id.len() == size && id.iter().any(|byte| *byte != 0) {
            labels.push((
                name.to_owned(),
                id.iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>(),
            ));
        }
    }
    let mut attributes = Vec::new();
    for attribute in &exemplar.attributes {
        let is_other = labels
            .iter()
            .all(|(name, _)| name.as_bytes() != attribute.key);
        if is_other {
            let value = value::print(attribute.value.as_ref());
            attributes.push((attribute.key().into_owned(), value));
        }
    }
    let n_chars: usize = labels
        .iter()
        .chain(&attributes)
        .map(|(n, v)| n.chars().count() + v.chars().count())
        .sum();
    if n_chars <= EXEMPLAR_CHARS_MAX {
        labels.extend(attributes);
    }
    labels.sort();
    labels
}

const TRACE_ID_SIZE: usize = 16;
const SPAN_ID_SIZE: usize = 8;
/// Maximum number of characters of an exemplar's labels in OpenMetrics.
const EXEMPLAR_CHARS_MAX: usize = 128;
