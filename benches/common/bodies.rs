//! Write requests with the samples of the fleet.

use std::ops::Range;

use crate::common::{STEP_MS, labels, value};
use crate::messages::{WriteRequest, series};

/// As Prometheus' default `max_samples_per_send`.
pub(crate) const SERIES_PER_REQUEST: usize = 2_000;

/// Returns requests with one sample of each of `range`, at a step after `start_ms`.
pub(crate) fn requests(
    range: Range<usize>,
    start_ms: i64,
    step: i64,
) -> impl Iterator<Item = WriteRequest> {
    let end = range.end;
    range.step_by(SERIES_PER_REQUEST).map(move |first| {
        WriteRequest::new((first..end.min(first + SERIES_PER_REQUEST)).map(|i| {
            let labels = labels(i);
            series(
                &labels.iter().collect::<Vec<_>>(),
                &[(start_ms + step * STEP_MS, value(i, step))],
            )
        }))
    })
}
