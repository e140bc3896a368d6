//! One evaluation of a recording rule: sets the name and the labels of its result.

use std::collections::BTreeSet;

use varve_query::VectorSample;
use varve_tsdb::Sample;
use varve_tsdb::labels::METRIC_NAME;

use crate::file::Texts;
use crate::label_set::with_labels;
use crate::storage::Output;

/// Returns the samples to write.
///
/// # Errors
/// Two samples have the same labels, or there are more series than the limit (0: no limit).
pub(crate) fn evaluate(
    name: &str,
    labels: &Texts,
    limit: usize,
    result: Vec<VectorSample>,
) -> Result<Vec<Output>, String> {
    let mut series = BTreeSet::new();
    let mut outputs = Vec::with_capacity(result.len());
    for VectorSample { labels: of_sample, point, histogram } in result {
        let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let labels = with_labels(&of_sample, [(METRIC_NAME, name)].into_iter().chain(own));
        if !series.insert(labels.clone()) {
            return Err("vector contains metrics with the same labelset after applying rule labels".into());
        }
        let sample = Sample { timestamp_ms: point.timestamp_ms, value: point.value };
        outputs.push(Output { labels, sample, histogram });
    }
    if limit > 0 && outputs.len() > limit {
        return Err(format!("exceeded limit of {limit} with {} series", outputs.len()));
    }
    Ok(outputs)
}
