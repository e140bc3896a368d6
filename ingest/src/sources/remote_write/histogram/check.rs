//! Checks of native histograms. Schemas from 9 to 52 are reduced to 8 first, as in the remote-write
//! receiver of Prometheus 3.16.

use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts, InvalidHistogram};

const SCHEMA_MAX: i32 = 8;
/// The finest schema that is reduced.
const SCHEMA_REDUCED_MAX: i32 = 52;

type Checked<T = ()> = Result<T, InvalidHistogram>;

/// Checks a histogram and sets its schema. Negative integer counts are above `i64::MAX`.
pub(crate) fn check(mut histogram: Histogram, mut schema: i32) -> Checked<Histogram> {
    if (SCHEMA_MAX + 1..=SCHEMA_REDUCED_MAX).contains(&schema) {
        reduce(&mut histogram, schema.abs_diff(SCHEMA_MAX))?;
        schema = SCHEMA_MAX;
    }
    histogram.schema = i8::try_from(schema).map_err(|_| InvalidHistogram::Schema(schema))?;
    histogram.validate()?;
    Ok(histogram)
}

/// Merges each group of 2^`finer` neighboring buckets into one.
fn reduce(histogram: &mut Histogram, finer: u32) -> Checked {
    let Histogram {
        counts,
        positive_spans,
        negative_spans,
        ..
    } = histogram;
    match counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => {
            reduce_side(positive_spans, positive, finer, u64::wrapping_add)?;
            reduce_side(negative_spans, negative, finer, u64::wrapping_add)
        }
        HistogramCounts::Float {
            positive, negative, ..
        } => {
            reduce_side(positive_spans, positive, finer, |a, b| a + b)?;
            reduce_side(negative_spans, negative, finer, |a, b| a + b)
        }
    }
}

fn reduce_side<T: Copy>(
    spans: &mut Vec<BucketSpan>,
    counts: &mut Vec<T>,
    finer: u32,
    add: impl Fn(T, T) -> T,
) -> Checked {
    Histogram::validate_spans(spans, counts.len())?;
    let mut coarse = Vec::<BucketSpan>::new();
    let mut coarse_counts = Vec::<T>::new();
    // There are as many buckets as counts.
    let mut idx = 0_i32;
    let mut last = 0_i32;
    let mut rest = counts.iter();
    for span in &*spans {
        idx = idx.wrapping_add(span.offset);
        for &count in rest.by_ref().take(span.length as usize) {
            let coarse_idx = (idx.wrapping_sub(1) >> finer.min(i32::BITS - 1)).wrapping_add(1);
            match (coarse.last_mut(), coarse_counts.last_mut()) {
                (Some(_), Some(sum)) if coarse_idx == last => *sum = add(*sum, count),
                (before, _) => {
                    match before {
                        Some(span) if coarse_idx == last.wrapping_add(1) => span.length += 1,
                        Some(_) => coarse.push(BucketSpan {
                            offset: coarse_idx.wrapping_sub(last).wrapping_sub(1),
                            length: 1,
                        }),
                        None => coarse.push(BucketSpan {
                            offset: coarse_idx,
                            length: 1,
                        }),
                    }
                    coarse_counts.push(count);
                    last = coarse_idx;
                }
            }
            idx = idx.wrapping_add(1);
        }
    }
    *spans = coarse;
    *counts = coarse_counts;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(positive: &[u64], length: u32) -> Histogram {
        let counts = HistogramCounts::Integer {
            count: positive.iter().sum(),
            zero_count: 0,
            positive: positive.to_vec(),
            negative: Vec::new(),
        };
        let positive_spans = vec![BucketSpan { offset: 1, length }];
        Histogram {
            counts,
            positive_spans,
            ..Histogram::default()
        }
    }

    #[test]
    fn schemas_that_do_not_fit_are_rejected() {
        for schema in [-5, -9, 53, i32::MIN, i32::MAX] {
            assert_eq!(
                check(whole(&[1, 2], 2), schema).unwrap_err(),
                InvalidHistogram::Schema(schema)
            );
        }
        let far = Histogram {
            positive_spans: vec![BucketSpan {
                offset: i32::MAX,
                length: 2,
            }],
            ..whole(&[1, 2], 2)
        };
        assert_eq!(
            check(far, 9).unwrap_err(),
            InvalidHistogram::SpanIndexOutOfRange
        );
    }

    #[test]
    fn finer_schemas_are_reduced_to_the_finest_stored_one() {
        // Buckets 1 to 5 of schema 9 are 1 and 2 | 3 and 4 | 5, which are buckets 1, 2 and 3 of
        // schema 8.
        let reduced = check(whole(&[1, 2, 3, 4, 5], 5), 9).unwrap();
        assert_eq!(
            reduced.positive_spans,
            [BucketSpan {
                offset: 1,
                length: 3
            }]
        );
        let HistogramCounts::Integer { positive, .. } = &reduced.counts else {
            panic!("{reduced:?}")
        };
        assert_eq!((&positive[..], reduced.schema), (&[3, 7, 5][..], 8));
        // A gap that remains starts a span; one that vanishes does not.
        let spans = [(1, 1), (2, 1), (7, 1)].map(|(offset, length)| BucketSpan { offset, length });
        let gaps = Histogram {
            positive_spans: spans.to_vec(),
            ..whole(&[1, 2, 3], 3)
        };
        let reduced = check(gaps, 9).unwrap();
        let spans = [(1, 2), (3, 1)].map(|(offset, length)| BucketSpan { offset, length });
        assert_eq!(reduced.positive_spans, spans);
        let far = check(whole(&[1, 2], 2), 52).unwrap();
        assert_eq!(
            far.positive_spans,
            [BucketSpan {
                offset: 1,
                length: 1
            }]
        );
        assert_eq!(
            check(whole(&[1], 2), 9).unwrap_err(),
            InvalidHistogram::SpansBucketsMismatch {
                spanned: 2,
                n_buckets: 1
            }
        );
    }
}
