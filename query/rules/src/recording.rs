//! The samples of a recording rule: the result of its query under the name and the labels of the
//! rule.

use std::collections::{BTreeMap, BTreeSet};

use varve_context::scheduler;
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Sample};
use varve_query::VectorSample;

use crate::file::Texts;
use crate::label_set::merge;
use crate::storage::Output;

/// Returns the samples to write, and their series.
///
/// # Errors
/// Two samples have the same labels, or there are more series than the limit (0: no limit).
pub(crate) fn label_result(
    name: &str,
    labels: &Texts,
    limit: usize,
    result: Vec<VectorSample>,
) -> Result<(Vec<Output>, BTreeSet<Labels>), String> {
    let own = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let changes: BTreeMap<&str, &str> = [(METRIC_NAME, name)].into_iter().chain(own).collect();
    let mut outputs = Vec::with_capacity(result.len());
    for sample in result {
        scheduler::pause();
        outputs.push(Output {
            labels: merge(&sample.labels, &changes),
            sample: Sample {
                timestamp_ms: sample.point.timestamp_ms,
                value: sample.point.value,
            },
            histogram: sample.histogram,
        });
    }
    let series: BTreeSet<Labels> = outputs.iter().map(|output| output.labels.clone()).collect();
    if series.len() < outputs.len() {
        return Err(
            "vector contains metrics with the same labelset after applying rule labels".into(),
        );
    }
    if limit > 0 && outputs.len() > limit {
        return Err(format!(
            "exceeded limit of {limit} with {} series",
            outputs.len()
        ));
    }
    Ok((outputs, series))
}
