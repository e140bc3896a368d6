//! Data points with delta temporality: addition to the total of their stream.

use super::bucket_merge::{BUCKETS_MAX, merge, n_merged, widen_zero_bucket};
use super::exemplar::check_exemplars;
use super::histogram;
use super::message::{Buckets, ExponentialPoint, HistogramPoint, Number, NumberPoint};

/// The sum of the deltas of a stream.
#[derive(Debug, Clone)]
pub(super) enum Total {
    Number(Number),
    Histogram(HistogramPoint),
    Exponential(ExponentialPoint),
}

/// A data point that a stream can accumulate.
pub(super) trait DeltaPoint: Sized {
    /// Returns the flags.
    fn flags(&self) -> u32;
    /// Returns when the delta starts.
    fn start_ns(&self) -> u64;
    /// Returns when the delta ends.
    fn time_ns(&self) -> u64;
    /// Replaces both times.
    fn set_times(&mut self, start_ns: u64, time_ns: u64);
    /// Returns the total of a stream whose first delta is this one.
    fn first(&self) -> Total;
    /// Adds the delta to a total. Returns `false` if they have different types.
    fn add_to(&self, total: &mut Total) -> bool;
    /// Replaces the values by a total. Returns `false` if it has another type.
    fn set(&mut self, total: &Total) -> bool;
    /// Checks that the point can be stored.
    ///
    /// # Errors
    /// The reason why it cannot be.
    fn check(&self, convert_to_nhcb: bool) -> Result<(), String>;
    /// Returns a point at another time with the same start and layout, and without observations.
    fn zero_at(&self, time_ns: u64) -> Self;
}

/// The methods of [`DeltaPoint`] that read and write fields: all points have the same.
macro_rules! field_accessors {
    () => {
        fn flags(&self) -> u32 {
            self.flags
        }

        fn start_ns(&self) -> u64 {
            self.start_ns
        }

        fn time_ns(&self) -> u64 {
            self.time_ns
        }

        fn set_times(&mut self, start_ns: u64, time_ns: u64) {
            (self.start_ns, self.time_ns) = (start_ns, time_ns);
        }
    };
}

impl Total {
    /// Returns the size of the lists of numbers.
    pub(super) fn numbers_size(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Histogram(point) => {
                8 * (point.bucket_counts.capacity() + point.explicit_bounds.capacity())
            }
            Self::Exponential(point) => {
                buckets_size(&point.positive) + buckets_size(&point.negative)
            }
        }
    }
}

fn buckets_size(buckets: &Option<Buckets>) -> usize {
    match buckets {
        Some(buckets) => 8 * buckets.counts.capacity(),
        None => 0,
    }
}

impl DeltaPoint for NumberPoint {
    field_accessors!();

    fn first(&self) -> Total {
        Total::Number(self.value.unwrap_or(Number::Int(0)))
    }

    fn add_to(&self, total: &mut Total) -> bool {
        let Total::Number(total) = total else {
            return false;
        };
        *total = match (*total, self.value) {
            (Number::Int(total), Some(Number::Int(delta))) => {
                Number::Int(total.wrapping_add(delta))
            }
            (total, delta) => Number::Double(total.as_f64() + delta.map_or(0.0, Number::as_f64)),
        };
        true
    }

    fn set(&mut self, total: &Total) -> bool {
        let Total::Number(total) = total else {
            return false;
        };
        self.value = Some(*total);
        true
    }

    fn check(&self, _convert_to_nhcb: bool) -> Result<(), String> {
        check_exemplars(&self.exemplars)
    }

    fn zero_at(&self, time_ns: u64) -> Self {
        Self {
            start_ns: self.start_ns,
            time_ns,
            value: Some(Number::Int(0)),
            ..Self::default()
        }
    }
}

impl DeltaPoint for HistogramPoint {
    field_accessors!();

    fn first(&self) -> Total {
        Total::Histogram(Self {
            count: self.count,
            sum: self.sum,
            bucket_counts: self.bucket_counts.clone(),
            explicit_bounds: self.explicit_bounds.clone(),
            ..Self::default()
        })
    }

    fn add_to(&self, total: &mut Total) -> bool {
        let Total::Histogram(total) = total else {
            return false;
        };
        let has_same_buckets = total.bucket_counts.len() == self.bucket_counts.len()
            && total
                .explicit_bounds
                .iter()
                .map(|bound| bound.to_bits())
                .eq(self.explicit_bounds.iter().map(|b| b.to_bits()));
        if !has_same_buckets {
            return false;
        }
        for (total, delta) in total.bucket_counts.iter_mut().zip(&self.bucket_counts) {
            *total = total.wrapping_add(*delta);
        }
        total.count = total.count.wrapping_add(self.count);
        total.sum = total.sum.zip(self.sum).map(|(total, delta)| total + delta);
        true
    }

    fn set(&mut self, total: &Total) -> bool {
        let Total::Histogram(total) = total else {
            return false;
        };
        (self.count, self.sum) = (total.count, total.sum);
        self.bucket_counts.clone_from(&total.bucket_counts);
        self.explicit_bounds.clone_from(&total.explicit_bounds);
        true
    }

    fn check(&self, convert_to_nhcb: bool) -> Result<(), String> {
        check_exemplars(&self.exemplars)?;
        if convert_to_nhcb {
            histogram::custom(self)?;
        }
        Ok(())
    }

    fn zero_at(&self, time_ns: u64) -> Self {
        Self {
            start_ns: self.start_ns,
            time_ns,
            sum: self.sum.map(|_| 0.0),
            bucket_counts: vec![0; self.bucket_counts.len()],
            explicit_bounds: self.explicit_bounds.clone(),
            ..Self::default()
        }
    }
}

impl DeltaPoint for ExponentialPoint {
    field_accessors!();

    fn first(&self) -> Total {
        let mut total = Total::Exponential(Self {
            scale: self.scale,
            sum: Some(0.0),
            zero_threshold: self.zero_threshold,
            ..Self::default()
        });
        self.add_to(&mut total);
        total
    }

    fn add_to(&self, total: &mut Total) -> bool {
        let Total::Exponential(total) = total else {
            return false;
        };
        let mut scale = i64::from(total.scale.min(self.scale));
        loop {
            let n_positive = n_merged(total.positive_at(scale), self.positive_at(scale));
            let n_negative = n_merged(total.negative_at(scale), self.negative_at(scale));
            if n_positive.max(n_negative) <= BUCKETS_MAX {
                break;
            }
            scale -= 1;
        }
        total.positive = merge(total.positive_at(scale), self.positive_at(scale));
        total.negative = merge(total.negative_at(scale), self.negative_at(scale));
        // Of a lower scale than an i32 holds, the translation rejects every point.
        total.scale = i32::try_from(scale).unwrap_or(i32::MIN);
        total.count = total.count.wrapping_add(self.count);
        total.zero_count = total.zero_count.wrapping_add(self.zero_count);
        total.sum = total.sum.zip(self.sum).map(|(total, delta)| total + delta);
        if total.zero_threshold != self.zero_threshold {
            widen_zero_bucket(total, total.zero_threshold.max(self.zero_threshold));
        }
        true
    }

    fn set(&mut self, total: &Total) -> bool {
        let Total::Exponential(total) = total else {
            return false;
        };
        (self.scale, self.count, self.zero_count, self.sum) =
            (total.scale, total.count, total.zero_count, total.sum);
        self.positive.clone_from(&total.positive);
        self.negative.clone_from(&total.negative);
        self.zero_threshold = total.zero_threshold;
        true
    }

    fn check(&self, _convert_to_nhcb: bool) -> Result<(), String> {
        check_exemplars(&self.exemplars)?;
        histogram::exponential(self).map(drop)
    }

    fn zero_at(&self, time_ns: u64) -> Self {
        Self {
            start_ns: self.start_ns,
            time_ns,
            sum: self.sum.map(|_| 0.0),
            scale: self.scale,
            zero_threshold: self.zero_threshold,
            ..Self::default()
        }
    }
}
