//! Joining cached and newly evaluated steps of a range query.

use std::cmp::Ordering;
use std::sync::Arc;

use varve_context::{Charge, QueryContext, scheduler};

use crate::error::Result;
use crate::value::MatrixSeries;

/// Returns the series of `cached`, cut to the times from `start_ms` to `end_ms` (excluded), each
/// joined with its points in `fresh`. Both ascend by labels, and `fresh` starts at `end_ms` or
/// later. Charges the result.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit.
pub(super) fn join(
    ctx: &QueryContext,
    cached: &[Arc<MatrixSeries>],
    (start_ms, end_ms): (i64, i64),
    fresh: Vec<Arc<MatrixSeries>>,
    charge: &mut Charge,
) -> Result<Vec<Arc<MatrixSeries>>> {
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
        if let Some(series) =
            series.filter(|series| !series.points.is_empty() || !series.histograms.is_empty())
        {
            charge.grow(series.size())?;
            joined.push(series);
        }
    }
}

/// Returns the points of a series in a range of times, followed by those of `fresh`.
fn followed(
    cached: &Arc<MatrixSeries>,
    (start_ms, end_ms): (i64, i64),
    fresh: Option<Arc<MatrixSeries>>,
) -> Arc<MatrixSeries> {
    let MatrixSeries {
        labels,
        points,
        histograms,
    } = &**cached;
    let start = points.partition_point(|point| point.timestamp_ms < start_ms);
    let end = points
        .partition_point(|point| point.timestamp_ms < end_ms)
        .max(start);
    let first = histograms.partition_point(|point| point.timestamp_ms < start_ms);
    let last = histograms
        .partition_point(|point| point.timestamp_ms < end_ms)
        .max(first);
    let (old, old_histograms) = (&points[start..end], &histograms[first..last]);
    // Fast path: all points of the series, and no others.
    if fresh.is_none() && old.len() == points.len() && old_histograms.len() == histograms.len() {
        return Arc::clone(cached);
    }
    let (new, new_histograms) = fresh
        .as_ref()
        .map_or((&[][..], &[][..]), |new| (&*new.points, &*new.histograms));
    Arc::new(MatrixSeries {
        labels: labels.clone(),
        points: [old, new].concat(),
        histograms: [old_histograms, new_histograms].concat(),
    })
}

#[cfg(test)]
mod tests {
    use varve_model::Labels;

    use super::*;
    use crate::value::Point;

    fn series(name: &str, times: &[i64]) -> Arc<MatrixSeries> {
        let labels = Labels::from_pairs([("i", name)]).unwrap();
        let point = |&timestamp_ms| Point {
            timestamp_ms,
            value: timestamp_ms as f64,
        };
        Arc::new(MatrixSeries {
            labels,
            points: times.iter().map(point).collect(),
            histograms: Vec::new(),
        })
    }

    #[test]
    fn series_of_both_parts_are_joined_in_label_order() {
        let cached = [
            series("a", &[1, 2, 3, 4]),
            series("b", &[1, 4]),
            series("d", &[2, 3]),
        ];
        let fresh = vec![series("a", &[4, 5]), series("c", &[5]), series("d", &[4])];
        let ctx = QueryContext::unbounded();
        let mut charge = ctx.charge();
        let joined = join(&ctx, &cached, (2, 4), fresh, &mut charge).unwrap();
        let times = |series: &Arc<MatrixSeries>| {
            let times: Vec<_> = series
                .points
                .iter()
                .map(|point| point.timestamp_ms)
                .collect();
            (series.labels.get("i").unwrap().to_owned(), times)
        };
        let expect = [
            ("a", vec![2, 3, 4, 5]),
            ("c", vec![5]),
            ("d", vec![2, 3, 4]),
        ];
        assert_eq!(
            joined.iter().map(times).collect::<Vec<_>>(),
            expect.map(|(name, times)| (name.to_owned(), times))
        );
        assert_eq!(
            charge.size(),
            joined.iter().map(|series| series.size()).sum::<usize>()
        );
    }
}
