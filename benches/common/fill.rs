//! Filling a store with the fleet.

use varve_model::Sample;
use varve_tsdb::{Db, SeriesHandle, WriteBatch};

use crate::common;

/// Creates `n_series` series and returns their handles.
pub(crate) fn series(db: &Db, n_series: usize) -> Vec<SeriesHandle> {
    (0..n_series)
        .map(|i| {
            db.series(&common::labels(i))
                .expect("write within the limits")
        })
        .collect()
}

/// Appends one sample to each series, in requests of 2,000.
pub(crate) fn append_step(db: &Db, handles: &[SeriesHandle], step: i64, batch: &mut WriteBatch) {
    for (chunk, first) in handles.chunks(2_000).zip((0..).step_by(2_000)) {
        batch.clear();
        for (k, &handle) in chunk.iter().enumerate() {
            let sample = Sample {
                timestamp_ms: common::START_MS + step * common::STEP_MS,
                value: common::value(first + k, step),
            };
            batch.push(handle, sample, k as u32);
        }
        db.append(batch).expect("write within the limits");
        assert!(batch.rejected().is_empty(), "steps ascend");
    }
}
