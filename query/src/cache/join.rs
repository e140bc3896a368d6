//! Joining cached and newly evaluated steps of a range query.

use std::cmp::Ordering;

use varve_tsdb::QueryContext;
use varve_tsdb::context::{Charge, scheduler};

use crate::error::Result;
use crate::value::{HistogramPoint, MatrixSeries, Point};

/// Returns the series of `cached`, cut to the times from `start_ms` to `end_ms` (excluded), each joined with its points
/// in `fresh`. Both ascend by labels, and `fresh` starts at `end_ms` or later. Charges the result.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit.
pub(super) fn join(
    ctx: &QueryContext,
    cached: &[MatrixSeries],
    (start_ms, end_ms): (i64, i64),
    fresh: Vec<MatrixSeries>,
    charge: &mut Charge,
) -> Result<Vec<MatrixSeries>> {
    let mut joined = Vec::with_capacity(cached.len().max(fresh.len()));
    let (mut cached, mut fresh) = (cached.iter().peekable(), fresh.into_iter().peekable());
    loop {
        scheduler::pause();
        ctx.check()?;
        let (old, new) = match (cached.peek(), fresh.peek()) {
            (None, None) => return Ok(joined),
            (Some(_), None) => (cached.next(), None),
            (None, Some(_)) => (None, fresh.next()),
            (Some(old), Some(new)) => match old.labels.cmp(&new.labels) {
                Ordering::Less => (cached.next(), None),
                Ordering::Equal => (cached.next(), fresh.next()),
                Ordering::Greater => (None, fresh.next()),
            },
        };
        let series = match (old, new) {
            (Some(old), new) => Some(followed(old, (start_ms, end_ms), new)),
            (None, new) => new,
        };
        if let Some(series) = series.filter(|series| !series.points.is_empty() || !series.histograms.is_empty()) {
            charge.grow(size_of_series(&series))?;
            joined.push(series);
        }
    }
}

/// Returns the points of a series in a range of times, followed by those of `fresh`.
fn followed(cached: &MatrixSeries, (start_ms, end_ms): (i64, i64), fresh: Option<MatrixSeries>) -> MatrixSeries {
    let MatrixSeries { labels, points, histograms } = cached;
    let start = points.partition_point(|point| point.timestamp_ms < start_ms);
    let end = points.partition_point(|point| point.timestamp_ms < end_ms);
    let first = histograms.partition_point(|point| point.timestamp_ms < start_ms);
    let last = histograms.partition_point(|point| point.timestamp_ms < end_ms);
    let (mut joined, mut joined_histograms) = match &fresh {
        Some(fresh) => (
            Vec::<Point>::with_capacity(end.saturating_sub(start) + fresh.points.len()),
            Vec::<HistogramPoint>::with_capacity(last.saturating_sub(first) + fresh.histograms.len()),
        ),
        None => (Vec::new(), Vec::new()),
    };
    joined.extend_from_slice(&points[start.min(end)..end]);
    joined_histograms.extend_from_slice(&histograms[first.min(last)..last]);
    if let Some(fresh) = fresh {
        joined.extend(fresh.points);
        joined_histograms.extend(fresh.histograms);
    }
    MatrixSeries { labels: labels.clone(), points: joined, histograms: joined_histograms }
}

/// Returns the size of a series in memory. Shared label sets and histograms count in full.
pub(super) fn size_of_series(series: &MatrixSeries) -> usize {
    let histograms = series.histograms.iter().map(|point| size_of::<HistogramPoint>() + point.histogram.size());
    size_of::<MatrixSeries>() + series.labels.size() + size_of_val(&*series.points) + histograms.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use varve_tsdb::Labels;

    use super::*;

    fn series(name: &str, times: &[i64]) -> MatrixSeries {
        let labels = Labels::from_pairs([("i", name)]).unwrap();
        let point = |&timestamp_ms| Point { timestamp_ms, value: timestamp_ms as f64 };
        MatrixSeries { labels, points: times.iter().map(point).collect(), histograms: Vec::new() }
    }

    #[test]
    fn series_of_both_parts_are_joined_in_label_order() {
        let cached = [series("a", &[1, 2, 3, 4]), series("b", &[1, 4]), series("d", &[2, 3])];
        let fresh = vec![series("a", &[4, 5]), series("c", &[5]), series("d", &[4])];
        let ctx = QueryContext::unbounded();
        let mut charge = ctx.charge();
        let joined = join(&ctx, &cached, (2, 4), fresh, &mut charge).unwrap();
        let times = |series: &MatrixSeries| {
            let times: Vec<_> = series.points.iter().map(|point| point.timestamp_ms).collect();
            (series.labels.get("i").unwrap().to_owned(), times)
        };
        let expect = [("a", vec![2, 3, 4, 5]), ("c", vec![5]), ("d", vec![2, 3, 4])];
        assert_eq!(joined.iter().map(times).collect::<Vec<_>>(), expect.map(|(name, times)| (name.to_owned(), times)));
        assert_eq!(charge.size(), joined.iter().map(size_of_series).sum::<usize>());
    }
}
