//! Checks of native histograms, in the order and with the messages of `Validate` in Prometheus'
//! `model/histogram` (3.16).
//!
//! Deliberately different: Prometheus accepts any zero threshold. A NaN has no order, so no merge
//! of zero buckets ends for it, and a negative or infinite threshold has no meaning. Prometheus
//! also accepts bucket indexes that do not fit into 32 bits.

use super::native_histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts};

/// The reason why a histogram is invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidHistogram {
    /// The count is less than the sum of all buckets.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: \
         histogram's observation count should be at least the number of observations found in the buckets"
    )]
    CountNotBigEnough {
        /// The sum of all buckets.
        found: u64,
        /// The count.
        count: u64,
    },
    /// The count is not the sum of all buckets.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: \
         histogram's observation count should equal the number of observations found in the buckets (in absence of NaN)"
    )]
    CountMismatch {
        /// The sum of all buckets.
        found: u64,
        /// The count.
        count: u64,
    },
    /// The count is negative.
    #[error("histogram's observation count is negative")]
    NegativeCount,
    /// The count of a bucket is negative.
    #[error("histogram has a bucket whose observation count is negative")]
    NegativeBucketCount,
    /// A span begins before the end of the previous one.
    #[error("histogram has a span whose offset is negative")]
    SpanNegativeOffset,
    /// The index of a bucket does not fit into 32 bits.
    #[error("histogram has a span whose bucket index is out of range")]
    SpanIndexOutOfRange,
    /// The zero threshold is negative or not finite.
    #[error("histogram has a zero threshold that is negative or not finite: {0}")]
    ZeroThreshold(f64),
    /// The spans have more or fewer buckets than there are counts.
    #[error(
        "spans need {spanned} buckets, have {n_buckets} buckets: histogram spans specify different \
         number of buckets than provided"
    )]
    SpansBucketsMismatch {
        /// Number of buckets of the spans.
        spanned: u64,
        /// Number of counts.
        n_buckets: u64,
    },
    /// There are fewer custom bounds than buckets need.
    #[error("histogram custom bounds are too few")]
    CustomBoundsTooFew,
    /// A custom bound is not above the previous one.
    #[error("histogram custom bounds must be in strictly increasing order")]
    CustomBoundsDoNotAscend,
    /// A custom bound is infinite.
    #[error("histogram custom bounds must be finite")]
    CustomBoundsInfinite,
    /// A custom bound is NaN.
    #[error("histogram custom bounds must not be NaN")]
    CustomBoundsNan,
    /// Custom buckets have a zero bucket.
    #[error("custom buckets: must have zero count of 0")]
    CustomZeroCount,
    /// Custom buckets have a zero threshold.
    #[error("custom buckets: must have zero threshold of 0")]
    CustomZeroThreshold,
    /// Custom buckets have negative spans.
    #[error("custom buckets: must not have negative spans")]
    CustomNegativeSpans,
    /// Custom buckets have negative buckets.
    #[error("custom buckets: must not have negative buckets")]
    CustomNegativeBuckets,
    /// Exponential buckets have custom bounds.
    #[error("histogram with exponential schema must not have custom bounds")]
    ExponentialCustomBounds,
    /// The schema is neither exponential nor that of custom buckets.
    #[error(
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, or -53 for custom \
         buckets, got schema {0}"
    )]
    Schema(i32),
}

type Checked = Result<(), InvalidHistogram>;

impl Histogram {
    /// Checks the histogram. Negative integer counts are above `i64::MAX`.
    ///
    /// # Errors
    /// The first reason to reject the histogram.
    pub fn validate(&self) -> Result<(), InvalidHistogram> {
        let (n_positive, n_negative) = self.counts.n_buckets();
        match self.schema {
            CUSTOM_BUCKETS_SCHEMA => check_custom(self, n_positive, n_negative)?,
            SCHEMA_MIN..=SCHEMA_MAX => check_exponential(self, n_positive, n_negative)?,
            schema => return Err(InvalidHistogram::Schema(schema.into())),
        }
        check_counts(self)
    }

    /// Checks the spans of one side, given the number of its counts.
    ///
    /// # Errors
    /// See [`Histogram::validate`].
    pub fn validate_spans(spans: &[BucketSpan], n_buckets: usize) -> Result<(), InvalidHistogram> {
        use InvalidHistogram as Invalid;
        let mut n_spanned = 0_u64;
        let mut end = 0_i64;
        for (i, span) in spans.iter().enumerate() {
            require(i == 0 || span.offset >= 0, Invalid::SpanNegativeOffset)?;
            n_spanned += u64::from(span.length);
            // Bucket indexes have 32 bits. The sum has 64, so that it shows which indexes would
            // wrap.
            end += i64::from(span.offset) + i64::from(span.length);
            // The lower bound of a bucket is the upper bound of the index before it, so `i32::MIN`
            // is out of range as well.
            let fits = (i > 0 || span.offset > i32::MIN) && end - 1 <= i64::from(i32::MAX);
            require(fits, Invalid::SpanIndexOutOfRange)?;
        }
        check_n_buckets(n_spanned, n_buckets)
    }
}

fn check_custom(histogram: &Histogram, n_positive: usize, n_negative: usize) -> Checked {
    use InvalidHistogram as Invalid;
    let bounds = &histogram.custom_bounds;
    let spans = &histogram.positive_spans;
    for (i, bound) in bounds.iter().enumerate() {
        require(!bound.is_nan(), Invalid::CustomBoundsNan)?;
        require(
            i == 0 || *bound > bounds[i - 1],
            Invalid::CustomBoundsDoNotAscend,
        )?;
    }
    require(
        bounds.last() != Some(&f64::INFINITY),
        Invalid::CustomBoundsInfinite,
    )?;
    require(
        spans.iter().all(|span| span.offset >= 0),
        Invalid::SpanNegativeOffset,
    )?;
    let n_spanned: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    check_n_buckets(n_spanned, n_positive)?;
    let end = spans.iter().fold(n_spanned, |end, span| {
        end + u64::from(span.offset.unsigned_abs())
    });
    require(bounds.len() as u64 + 1 >= end, Invalid::CustomBoundsTooFew)?;
    let is_zero_unused = match &histogram.counts {
        HistogramCounts::Integer { zero_count, .. } => *zero_count == 0,
        HistogramCounts::Float { zero_count, .. } => *zero_count == 0.0,
    };
    require(is_zero_unused, Invalid::CustomZeroCount)?;
    require(
        histogram.zero_threshold == 0.0,
        Invalid::CustomZeroThreshold,
    )?;
    require(
        histogram.negative_spans.is_empty(),
        Invalid::CustomNegativeSpans,
    )?;
    require(n_negative == 0, Invalid::CustomNegativeBuckets)
}

fn check_exponential(histogram: &Histogram, n_positive: usize, n_negative: usize) -> Checked {
    use InvalidHistogram as Invalid;
    Histogram::validate_spans(&histogram.positive_spans, n_positive)?;
    Histogram::validate_spans(&histogram.negative_spans, n_negative)?;
    match &histogram.counts {
        HistogramCounts::Integer { negative, .. } => {
            require(!any_negative(negative), Invalid::NegativeBucketCount)?
        }
        HistogramCounts::Float {
            negative,
            zero_count,
            ..
        } => {
            require(
                !any_less(negative) && !any_less(&[*zero_count]),
                Invalid::NegativeBucketCount,
            )?;
        }
    }
    require(
        histogram.custom_bounds.is_empty(),
        Invalid::ExponentialCustomBounds,
    )?;
    let threshold = histogram.zero_threshold;
    require(
        (0.0..f64::INFINITY).contains(&threshold),
        Invalid::ZeroThreshold(threshold),
    )
}

/// Checks positive buckets and the count: of floats, that it is not negative; of integers, that it
/// is the sum of all buckets. Negative buckets are checked by [`check_exponential`].
fn check_counts(histogram: &Histogram) -> Checked {
    use InvalidHistogram as Invalid;
    match &histogram.counts {
        HistogramCounts::Float {
            count, positive, ..
        } => {
            require(!any_less(&[*count]), Invalid::NegativeCount)?;
            require(!any_less(positive), Invalid::NegativeBucketCount)
        }
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => {
            require(!any_negative(positive), Invalid::NegativeBucketCount)?;
            let count = *count;
            let found = positive
                .iter()
                .chain(negative)
                .fold(*zero_count, |sum, count| sum.wrapping_add(*count));
            // Observations of NaN are counted, but are in no bucket.
            if histogram.sum.is_nan() {
                require(found <= count, Invalid::CountNotBigEnough { found, count })
            } else {
                require(found == count, Invalid::CountMismatch { found, count })
            }
        }
    }
}

fn check_n_buckets(spanned: u64, n_buckets: usize) -> Checked {
    let n_buckets = n_buckets as u64;
    require(
        spanned == n_buckets,
        InvalidHistogram::SpansBucketsMismatch { spanned, n_buckets },
    )
}

fn require(holds: bool, otherwise: InvalidHistogram) -> Checked {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn any_negative(counts: &[u64]) -> bool {
    counts.iter().any(|count| count.cast_signed() < 0)
}

fn any_less(counts: &[f64]) -> bool {
    counts.iter().any(|&count| count < 0.0)
}

const SCHEMA_MIN: i8 = -4;
const SCHEMA_MAX: i8 = 8;

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

    fn float(count: f64, positive: &[f64]) -> Histogram {
        let counts = HistogramCounts::Float {
            count,
            zero_count: 0.0,
            positive: positive.to_vec(),
            negative: Vec::new(),
        };
        let positive_spans = vec![BucketSpan {
            offset: 0,
            length: positive.len() as u32,
        }];
        Histogram {
            counts,
            positive_spans,
            ..Histogram::default()
        }
    }

    fn check(histogram: Histogram, schema: i8) -> Checked {
        Histogram {
            schema,
            ..histogram
        }
        .validate()
    }

    fn refused(histogram: Histogram, schema: i8) -> InvalidHistogram {
        check(histogram, schema).unwrap_err()
    }

    #[test]
    fn invalid_histograms_have_the_errors_of_prometheus() {
        use InvalidHistogram as Invalid;
        let good = whole(&[1, 2], 2);
        for schema in [-4, 0, 8] {
            assert!(check(good.clone(), schema).is_ok());
        }
        for schema in [-5, 9, 53, -52, i8::MIN, i8::MAX] {
            assert_eq!(
                refused(good.clone(), schema),
                Invalid::Schema(schema.into())
            );
        }
        assert_eq!(
            refused(whole(&[1, 2], 3), 3).to_string(),
            "spans need 3 buckets, have 2 buckets: histogram spans specify different number of buckets than provided"
        );
        assert_eq!(
            refused(whole(&[1, 1 << 63], 2), 3),
            Invalid::NegativeBucketCount
        );
        let spans = |second| {
            vec![
                BucketSpan {
                    offset: -7,
                    length: 1,
                },
                BucketSpan {
                    offset: second,
                    length: 1,
                },
            ]
        };
        assert_eq!(
            refused(
                Histogram {
                    positive_spans: spans(-1),
                    ..good.clone()
                },
                3
            ),
            Invalid::SpanNegativeOffset
        );
        assert!(
            check(
                Histogram {
                    positive_spans: spans(0),
                    ..good.clone()
                },
                3
            )
            .is_ok()
        );
        let at = |offset| Histogram {
            positive_spans: vec![BucketSpan { offset, length: 2 }],
            ..good.clone()
        };
        for (offset, schema, fits) in [
            (i32::MIN, 3, false),
            (i32::MIN + 1, 3, true),
            (i32::MAX - 1, 3, true),
            (i32::MAX, 3, false),
        ] {
            let expect = if fits {
                None
            } else {
                Some(Invalid::SpanIndexOutOfRange)
            };
            assert_eq!(check(at(offset), schema).err(), expect, "{offset}");
        }
        let far = [
            BucketSpan {
                offset: i32::MAX - 5,
                length: 1,
            },
            BucketSpan {
                offset: 5,
                length: 1,
            },
        ];
        assert_eq!(
            refused(
                Histogram {
                    positive_spans: far.to_vec(),
                    ..good.clone()
                },
                3
            ),
            Invalid::SpanIndexOutOfRange
        );
        let threshold = |zero_threshold| {
            check(
                Histogram {
                    zero_threshold,
                    ..good.clone()
                },
                3,
            )
        };
        for valid in [0.0, -0.0, 1e-128, f64::MAX] {
            assert!(threshold(valid).is_ok(), "{valid}");
        }
        for invalid in [
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1e-128,
        ] {
            assert!(
                matches!(threshold(invalid), Err(Invalid::ZeroThreshold(_))),
                "{invalid}"
            );
        }
        assert_eq!(
            refused(
                Histogram {
                    custom_bounds: vec![1.0],
                    ..good.clone()
                },
                3
            ),
            Invalid::ExponentialCustomBounds
        );
        let counted = |count, sum| {
            let counts = HistogramCounts::Integer {
                count,
                zero_count: 1,
                positive: vec![1],
                negative: vec![1],
            };
            let one = vec![BucketSpan {
                offset: 0,
                length: 1,
            }];
            Histogram {
                counts,
                sum,
                positive_spans: one.clone(),
                negative_spans: one,
                ..Histogram::default()
            }
        };
        assert_eq!(
            refused(counted(4, 1.0), 3),
            Invalid::CountMismatch { found: 3, count: 4 }
        );
        assert!(check(counted(4, f64::NAN), 3).is_ok());
        assert_eq!(
            refused(counted(2, f64::NAN), 3),
            Invalid::CountNotBigEnough { found: 3, count: 2 }
        );
        assert_eq!(refused(float(-1.0, &[1.0]), 3), Invalid::NegativeCount);
        assert_eq!(
            refused(float(1.0, &[1.0, -0.5]), 3),
            Invalid::NegativeBucketCount
        );
        assert!(check(float(0.5, &[f64::NAN]), 3).is_ok());
    }

    #[test]
    fn custom_bounds_ascend_are_finite_and_enough() {
        use InvalidHistogram as Invalid;
        let with = |bounds: &[f64]| Histogram {
            custom_bounds: bounds.to_vec(),
            ..whole(&[1, 2], 2)
        };
        assert!(check(with(&[0.5, 1.0]), -53).is_ok());
        assert_eq!(refused(with(&[0.5]), -53), Invalid::CustomBoundsTooFew);
        assert_eq!(
            refused(with(&[0.5, 0.5]), -53),
            Invalid::CustomBoundsDoNotAscend
        );
        assert_eq!(
            refused(with(&[0.5, f64::NAN]), -53),
            Invalid::CustomBoundsNan
        );
        assert_eq!(
            refused(with(&[0.5, f64::INFINITY]), -53),
            Invalid::CustomBoundsInfinite
        );
        for zero_threshold in [0.1, f64::NAN] {
            let threshold = Histogram {
                zero_threshold,
                ..with(&[0.5, 1.0])
            };
            assert_eq!(refused(threshold, -53), Invalid::CustomZeroThreshold);
        }
        let spans = vec![BucketSpan {
            offset: 0,
            length: 0,
        }];
        assert_eq!(
            refused(
                Histogram {
                    negative_spans: spans,
                    ..with(&[0.5, 1.0])
                },
                -53
            ),
            Invalid::CustomNegativeSpans
        );
    }
}
