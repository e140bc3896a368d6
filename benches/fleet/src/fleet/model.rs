//! Models of how the value of a series changes, for the tables of the exporters.
//!
//! A value is a multiple of a unit, divided by a power of ten. It is computed from the series' seed
//! and the rounds since its process started, without state. A model gives a range of powers of two
//! for the rate or level. The seed of a series selects its position in the range.

use super::noise::{below, drift, events, mix, mix2, walk};

/// Powers of ten by exponent.
const POWERS_OF_TEN: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Rounds between two supporting points of a gauge's level.
const GAUGE_KNOTS: u64 = 32;
/// The share of observations in a bucket is a multiple of 1 / SHARES.
const SHARES: u64 = 256;
/// Rounds after which a histogram's buckets have their full noise. The count is too small for it
/// before.
const NOISE_RAMP: u64 = 1024;

/// The model of a series' value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Model {
    shape: Shape,
    unit: u32,
    decimals: u8,
    idle_percent: u8,
    ulps: u8,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// A constant of the range.
    Constant { low: u64, high: u64 },
    /// Grows by `2^low` to `2^high` per round on average.
    Counter { low: u8, high: u8 },
    /// Grows by one every `every` rounds.
    Rare { every: u32 },
    /// A level of `2^low` to `2^high` that drifts by half of itself, plus `noise` bits of noise.
    Gauge { low: u8, high: u8, noise: u8 },
    /// A number of the range that changes every `hold` rounds.
    Level { low: u64, high: u64, hold: u32 },
    /// A series of a histogram whose count is a [`Shape::Counter`].
    Histogram { low: u8, high: u8, part: Part },
    /// The current time in milliseconds.
    Now,
    /// The start time of the process in milliseconds.
    Started,
}

/// A series of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Bucket `idx` of `n`. The last one is `+Inf`.
    Bucket { idx: u8, n: u8 },
    /// The sum of observations of about `2^bits` units.
    Sum { bits: u8 },
    /// The count.
    Count,
}

/// The series and time for which a value is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// The seed of the series, or of the histogram that it belongs to.
    pub(super) seed: u64,
    /// Rounds since the start of the process or pod.
    pub(super) elapsed: u64,
    pub(super) now_ms: u64,
    pub(super) interval_ms: u64,
}

/// Returns the model of a constant.
pub(super) const fn constant(value: u64) -> Model {
    drawn(value, value)
}

/// Returns the model of a constant that differs between series.
pub(super) const fn drawn(low: u64, high: u64) -> Model {
    Model::of(Shape::Constant { low, high })
}

/// Returns the model of a counter that grows by `2^low` to `2^high` per 30 seconds.
pub(super) const fn counter(low: u8, high: u8) -> Model {
    Model::of(Shape::Counter { low, high })
}

/// Returns the model of a counter that grows by one every `every` rounds.
pub(super) const fn rare(every: u32) -> Model {
    Model::of(Shape::Rare { every })
}

/// Returns the model of a gauge of `2^low` to `2^high` with `noise` bits of noise.
pub(super) const fn gauge(low: u8, high: u8, noise: u8) -> Model {
    Model::of(Shape::Gauge { low, high, noise })
}

/// Returns the model of an integer of the range that changes every `hold` rounds.
pub(super) const fn level(low: u64, high: u64, hold: u32) -> Model {
    Model::of(Shape::Level { low, high, hold })
}

/// Returns the model of the current time in seconds.
pub(super) const fn now() -> Model {
    Model::of(Shape::Now).decimals(3)
}

/// Returns the model of the start time of the process in seconds.
pub(super) const fn started() -> Model {
    Model::of(Shape::Started).decimals(3)
}

/// Returns the model of a series of a histogram with `2^low` to `2^high` observations per 30
/// seconds.
pub(super) const fn histogram(low: u8, high: u8, part: Part) -> Model {
    Model::of(Shape::Histogram { low, high, part })
}

impl Model {
    const fn of(shape: Shape) -> Self {
        Self {
            shape,
            unit: 1,
            decimals: 0,
            idle_percent: 0,
            ulps: 0,
        }
    }

    /// Multiplies by a unit such as the size of a page.
    pub(super) const fn unit(self, unit: u32) -> Self {
        Self { unit, ..self }
    }

    /// Divides by ten to the power of `decimals`, at most 9.
    pub(super) const fn decimals(self, decimals: u8) -> Self {
        Self { decimals, ..self }
    }

    /// Makes `percent` of the series constant.
    pub(super) const fn idle(self, percent: u8) -> Self {
        Self {
            idle_percent: percent,
            ..self
        }
    }

    /// Adds the rounding error of a sum of floats: up to `ulps` units in the last place.
    pub(super) const fn rounded(self, ulps: u8) -> Self {
        Self { ulps, ..self }
    }

    /// Returns the value at a time.
    pub(super) fn value(&self, moment: &Moment) -> f64 {
        let whole = self.whole(moment) * u64::from(self.unit);
        let value = whole as f64 / POWERS_OF_TEN[usize::from(self.decimals)];
        match self.ulps {
            0 => value,
            _ if whole == 0 => value,
            // The error depends on the sum, not on the time: a constant sum keeps its bits.
            ulps => f64::from_bits(
                value.to_bits() + below(mix2(moment.seed, whole), u64::from(ulps) + 1),
            ),
        }
    }

    /// Returns `true` if the value depends on [`Moment::now_ms`].
    pub(super) fn depends_on_time(&self) -> bool {
        matches!(self.shape, Shape::Now | Shape::Started)
    }

    fn whole(&self, moment: &Moment) -> u64 {
        let moment = &Moment {
            elapsed: if self.is_idle(moment.seed) {
                0
            } else {
                moment.elapsed
            },
            ..*moment
        };
        let seed = moment.seed;
        let n = moment.elapsed;
        match self.shape {
            Shape::Constant { low, high } => low + below(mix(seed), high - low + 1),
            Shape::Counter { low, high } => count(moment, low, high).0,
            Shape::Rare { every } => events(seed, n, u64::from(every)),
            Shape::Gauge { low, high, noise } => {
                let middle = power(mix(seed), low, high);
                middle / 2
                    + drift(seed, n, GAUGE_KNOTS, middle / 2)
                    + (mix2(seed, !n) & ((1 << noise) - 1))
            }
            Shape::Level { low, high, hold } => {
                let period = (n + below(mix(seed), u64::from(hold))) / u64::from(hold);
                low + below(mix2(seed, period), high - low + 1)
            }
            Shape::Histogram { low, high, part } => part.whole(moment, low, high),
            Shape::Now => moment.now_ms,
            Shape::Started => moment.now_ms - moment.elapsed * moment.interval_ms,
        }
    }

    fn is_idle(&self, seed: u64) -> bool {
        self.idle_percent > 0 && below(mix(!seed), 100) < u64::from(self.idle_percent)
    }
}

impl Part {
    /// Computes the value as an integer. Bucket and sum are computed from the count, each with
    /// noise that is smaller than the growth per round. So buckets ascend over `le`, the last one
    /// equals the count, and no value decreases.
    fn whole(self, moment: &Moment, low: u8, high: u8) -> u64 {
        let (count, step) = count(moment, low, high);
        match self {
            Self::Count => count,
            Self::Sum { bits } => (count << bits) + (mix2(moment.seed, count) & ((1 << bits) - 1)),
            Self::Bucket { idx, n } => {
                let share = share(mix(moment.seed ^ 1), u64::from(idx), u64::from(n));
                // A step is at least an eighth of its mean (see `walk`). The noise is at most a
                // quarter of the part of such a step inside or outside of the bucket, whichever is
                // smaller.
                let room = step * share.min(SHARES - share) / SHARES / 32
                    * moment.elapsed.min(NOISE_RAMP)
                    / NOISE_RAMP;
                let noise = mix2(moment.seed ^ u64::from(idx), moment.elapsed);
                (count * share / SHARES + below(noise, room + 1)).min(count)
            }
        }
    }
}

/// Returns the value of a counter and its mean step.
fn count(moment: &Moment, low: u8, high: u8) -> (u64, u64) {
    let step = (power(mix(moment.seed), low, high) * moment.interval_ms / 30_000).max(1);
    (walk(moment.seed, moment.elapsed, step), step)
}

/// Returns a number between two powers of two whose logarithm is about uniformly distributed.
fn power(random: u64, low: u8, high: u8) -> u64 {
    let exponent = u64::from(low) + below(random, u64::from(high - low).max(1));
    (1 << exponent)
        + if high > low {
            below(random.rotate_left(32), 1 << exponent)
        } else {
            0
        }
}

/// Returns the share of observations in buckets up to `idx` of `n`, in units of 1 / [`SHARES`]: an
/// S curve with random middle and width.
fn share(random: u64, idx: u64, n: u64) -> u64 {
    let width = 2 + below(random, n / 3 + 1);
    let start = below(random.rotate_left(32), n.saturating_sub(width) + 1);
    if idx + 1 == n || idx >= start + width {
        return SHARES;
    }
    let along = (idx + 1).saturating_sub(start) * SHARES / (width + 1);
    along * along * (3 * SHARES - 2 * along) / (SHARES * SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seed: u64, elapsed: u64) -> Moment {
        Moment {
            seed,
            elapsed,
            now_ms: 1_700_000_000_000,
            interval_ms: 30_000,
        }
    }

    #[test]
    fn buckets_ascend_over_le_and_time_and_end_at_the_count() {
        for (seed, low, high) in
            (0..200).map(|seed| (seed, (seed % 12) as u8, (seed % 12) as u8 + 3))
        {
            let n_buckets = 3 + (seed % 20) as u8;
            let part = |part, n| histogram(low, high, part).value(&at(seed, n));
            let buckets = |n| {
                (0..n_buckets)
                    .map(|idx| part(Part::Bucket { idx, n: n_buckets }, n))
                    .collect::<Vec<_>>()
            };
            let mut before = vec![0.0; usize::from(n_buckets)];
            for n in (0..40).chain(1000..1100).chain(20_000..20_050) {
                let now = buckets(n);
                assert!(now.is_sorted(), "seed {seed}, round {n}: {now:?}");
                assert!(
                    now.iter().zip(&before).all(|(now, before)| now >= before),
                    "seed {seed}, round {n}"
                );
                assert_eq!(now.last(), Some(&part(Part::Count, n)));
                before = now;
            }
        }
    }

    #[test]
    fn sums_never_decrease_and_keep_their_bits_without_observations() {
        let sum = histogram(0, 1, Part::Sum { bits: 20 })
            .decimals(9)
            .rounded(7);
        let values: Vec<_> = (0..2000).map(|n| sum.value(&at(5, n))).collect();
        assert!(values.is_sorted());
        let count: Vec<_> = (0..2000)
            .map(|n| histogram(0, 1, Part::Count).value(&at(5, n)))
            .collect();
        for (sums, counts) in values.windows(2).zip(count.windows(2)) {
            assert_eq!(sums[0] == sums[1], counts[0] == counts[1]);
        }
    }

    #[test]
    fn values_with_decimals_are_the_nearest_floats() {
        let model = counter(10, 12).decimals(2);
        for n in 0..1000 {
            let value = model.value(&at(3, n));
            assert_eq!(format!("{value:.2}").parse(), Ok(value));
        }
    }

    #[test]
    fn idle_series_are_constant() {
        let model = counter(4, 8).idle(60);
        let n_idle = (0..1000)
            .filter(|&seed| model.value(&at(seed, 10)) == model.value(&at(seed, 500)))
            .count();
        assert!((540..660).contains(&n_idle), "{n_idle}");
    }
}
