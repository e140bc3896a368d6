//! Joining cached and newly evaluated steps of a range query.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use varve_context::{Charge, QueryContext, scheduler};

use crate::error::Result;
use crate::value::MatrixSeries;

/// Number of series between two pauses and checks: reading the clock takes as long as joining a
/// short series.
const SERIES_PER_CHECK: usize = 16;

/// Returns the series of `cached`, cut to `times`, each joined with its points in `fresh`. Both
/// ascend by labels, and `fresh` starts at the end of `times` or later. Charges the result.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit.
pub(super) fn join(
    ctx: &QueryContext,
    cached: &[Arc<MatrixSeries>],
    times: Range<i64>,
    fresh: Vec<Arc<MatrixSeries>>,
    charge: &mut Charge,
) -> Result<Vec<Arc<MatrixSeries>>> {
    let mut joined = Vec::with_capacity(cached.len().max(fresh.len()));
    let mut cached = cached.iter().peekable();
    let mut fresh = fresh.into_iter().peekable();
    for i in 0_usize.. {
        if i.is_multiple_of(SERIES_PER_CHECK) {
            scheduler::pause();
            ctx.check()?;
        }
        // The labels of the cached series compared with those of the fresh one; a side that has
        // ended is after all others.
        let order = match (cached.peek(), fresh.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.labels.cmp(&new.labels),
        };
        let old = if order.is_le() { cached.next() } else { None };
        let new = if order.is_ge() { fresh.next() } else { None };
        let series = match old {
            Some(old) => Some(followed(old, &times, new)),
            None => new,
        };
        if let Some(series) = series
            && !(series.points.is_empty() && series.histograms.is_empty())
        {
            charge.grow(series.size())?;
            joined.push(series);
        }
    }
    Ok(joined)
}

/// Returns the points of a series in a range of times, followed by those of `fresh`.
fn followed(
    cached: &Arc<MatrixSeries>,
    times: &Range<i64>,
    fresh: Option<Arc<MatrixSeries>>,
) -> Arc<MatrixSeries> {
    let points = &cached.points;
    let start = points.partition_point(|point| point.timestamp_ms < times.start);
    let end = points.partition_point(|point| point.timestamp_ms < times.end);
    let old_points = &points[start..end.max(start)];

    let histograms = &cached.histograms;
    let start = histograms.partition_point(|point| point.timestamp_ms < times.start);
    let end = histograms.partition_point(|point| point.timestamp_ms < times.end);
    let old_histograms = &histograms[start..end.max(start)];

    let Some(fresh) = fresh else {
        // Fast path: all points of the series, and no others.
        if old_points.len() == points.len() && old_histograms.len() == histograms.len() {
            return Arc::clone(cached);
        }
        return Arc::new(MatrixSeries {
            labels: cached.labels.clone(),
            points: old_points.to_vec(),
            histograms: old_histograms.to_vec(),
        });
    };
    Arc::new(MatrixSeries {
        labels: cached.labels.clone(),
        points: [old_points, &fresh.points].concat(),
        histograms: [old_histograms, &fresh.histograms].concat(),
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
        let joined = join(&ctx, &cached, 2..4, fresh, &mut charge).unwrap();
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
