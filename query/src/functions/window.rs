//! Windows: the samples of one series in a range.

/// Float samples of one series in a range, as two columns, and the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    /// Times of the samples, ascending, not empty. Extended ranges have some outside of the bounds.
    pub(crate) timestamps_ms: &'a [i64],
    /// The values at these times.
    pub(crate) values: &'a [f64],
    /// The range begins behind this time.
    pub(crate) start_ms: i64,
    /// The range ends with this time.
    pub(crate) end_ms: i64,
    /// The time of the step that asks.
    pub(crate) eval_ms: i64,
    /// The length of the range, in seconds.
    pub(crate) range_seconds: f64,
}

impl Window<'_> {
    /// Returns the first and the last time.
    pub(super) fn ends_ms(&self) -> (i64, i64) {
        let last = self.timestamps_ms.len() - 1;
        (self.timestamps_ms[0], self.timestamps_ms[last])
    }

    /// Returns the first and the last value.
    pub(super) fn end_values(&self) -> (f64, f64) {
        (self.values[0], self.values[self.values.len() - 1])
    }
}

/// A window for tests of kernels: samples every `step_ms` from `step_ms` on, in the range `(0, n * step_ms]`.
#[cfg(test)]
pub(super) fn on_window<R>(step_ms: i64, values: &[f64], test: impl FnOnce(&Window<'_>) -> R) -> R {
    let timestamps_ms: Vec<_> = (1..=values.len() as i64).map(|i| i * step_ms).collect();
    let end_ms = step_ms * values.len() as i64;
    let range_seconds = end_ms as f64 / 1000.0;
    test(&Window { timestamps_ms: &timestamps_ms, values, start_ms: 0, end_ms, eval_ms: end_ms, range_seconds })
}
