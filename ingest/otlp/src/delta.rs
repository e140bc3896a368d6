//! Totals of the streams with delta temporality: each delta is added to the total, which is stored.
//!
//! As in the collector's `deltatocumulative` processor, which Prometheus uses: a stream starts with
//! its first delta, a delta that starts before its stream or ends before the total is rejected, and
//! a stream without deltas for [`IDLE_TIME_MAX`] is removed. A histogram with other bounds replaces
//! the total. An exponential histogram takes the lower scale of both, and a lower one if it has
//! more than [`BUCKETS_MAX`] buckets.
//!
//! Each tenant has streams of its own. A delta that the store rejects is rolled back
//! (`request_deltas`), unless its stream has changed since, or another request has repeated it.
//!
//! A repeated delta, for example of a request that was not stored, returns the same total again.
//! Totals are lost at a restart. Then they begin again at the next delta, which is a counter reset.
//!
//! Bounds: [`StreamShares`] limits the streams of all senders, and of each tenant; others are
//! rejected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_model::TenantLabels;

use super::bucket_merge::{merge, n_merged};
use super::labels::LabelMap;
use super::message::{Buckets, ExponentialPoint, HistogramPoint, Number, NumberPoint};
use super::staleness::is_stale;
use super::stream_key::{StreamHasher, StreamKey};
use super::stream_shares::StreamShares;

/// Maximum number of positive or negative buckets of an exponential histogram.
const BUCKETS_MAX: i64 = 160;
/// Maximum time between two deltas of a stream.
const IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// Interval of the removal of idle streams.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The totals of all streams.
#[derive(Debug, Default)]
pub struct DeltaStreams {
    hasher: StreamHasher,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    /// By tenant, name and labels.
    totals: HashMap<StreamKey, Stream>,
    shares: StreamShares,
    /// When idle streams were last removed.
    swept: Option<Instant>,
    last_request: RequestId,
}

#[derive(Debug)]
struct Stream {
    tenant: Arc<TenantLabels>,
    start_ns: u64,
    last: LastDelta,
    used: Instant,
}

/// The state of a stream after its last delta.
#[derive(Debug)]
struct LastDelta {
    total: Total,
    time_ns: u64,
    /// The last request that sent the delta.
    request: RequestId,
}

/// Identifies a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestId(u64);

/// A delta that a request has added to its stream.
#[derive(Debug)]
pub(super) struct AppliedDelta {
    key: StreamKey,
    /// The state before. `None` if the delta started the stream.
    before: Option<LastDelta>,
    // These identify the delta: those of a request are in the order of their times.
    request: RequestId,
    time_ns: u64,
}

/// The sum of the deltas of a stream.
#[derive(Debug, Clone)]
pub(super) enum Total {
    Number(Number),
    Histogram(HistogramPoint),
    Exponential(ExponentialPoint),
}

/// A data point that a stream can accumulate.
pub(super) trait DeltaPoint: Sized {
    /// Returns the flags, the start time and the time.
    fn flags_and_times(&mut self) -> (u32, &mut u64, u64);
    /// Returns the total of a stream whose first delta is this one.
    fn first(&self) -> Total;
    /// Adds the delta to a total. Returns `false` if they have different types.
    fn add_to(&self, total: &mut Total) -> bool;
    /// Replaces the values by a total of the same type.
    fn set(&mut self, total: &Total);
}

impl DeltaStreams {
    /// Returns the id of a new request.
    pub(super) fn start_request(&self) -> RequestId {
        let last_request = &mut self.streams.lock().last_request;
        last_request.0 += 1;
        *last_request
    }

    /// Adds a delta of a request to the total of its stream, and replaces it by the total. Returns
    /// what was added, or `None` if a repeated delta changes nothing.
    ///
    /// # Errors
    /// The reason why the data point is rejected.
    pub(super) fn accumulate(
        &self,
        request: RequestId,
        tenant: &TenantLabels,
        name: &str,
        labels: &LabelMap,
        point: &mut impl DeltaPoint,
        now: Instant,
    ) -> Result<Option<AppliedDelta>, String> {
        let (flags, &mut start_ns, time_ns) = point.flags_and_times();
        if is_stale(flags) {
            return Ok(None);
        }
        let key = self.hasher.key(tenant, name, labels);
        let mut streams = self.streams.lock();
        streams.sweep(now);
        let Streams { totals, shares, .. } = &mut *streams;
        let Some(stream) = totals.get_mut(&key) else {
            let last = LastDelta {
                total: point.first(),
                time_ns,
                request,
            };
            let stream = Stream {
                tenant: shares.add(tenant, last.total.size())?,
                start_ns,
                last,
                used: now,
            };
            totals.insert(key, stream);
            return Ok(Some(AppliedDelta::first(key, request, time_ns)));
        };

        stream.check_order(start_ns, time_ns)?;
        stream.used = now;
        let mut applied = None;
        if time_ns > stream.last.time_ns {
            let total = stream.total_with(point);
            shares.resize(&stream.tenant, stream.last.total.size(), total.size())?;
            let last = LastDelta {
                total,
                time_ns,
                request,
            };
            let before = std::mem::replace(&mut stream.last, last);
            applied = Some(AppliedDelta {
                key,
                before: Some(before),
                request,
                time_ns,
            });
        } else {
            // The request that sent the delta first must not roll it back: this one may store it.
            stream.last.request = request;
        }
        point.set(&stream.last.total);
        *point.flags_and_times().1 = stream.start_ns;
        Ok(applied)
    }

    /// Returns a stream to its state before a delta, unless the stream has changed since, or another
    /// request has repeated the delta.
    pub(super) fn roll_back(&self, applied: AppliedDelta) {
        let mut streams = self.streams.lock();
        let Streams { totals, shares, .. } = &mut *streams;
        let Some(stream) = totals.get_mut(&applied.key) else {
            return;
        };
        let last = &stream.last;
        if (last.request, last.time_ns) != (applied.request, applied.time_ns) {
            return;
        }
        let size = last.total.size();
        match applied.before {
            Some(before) => {
                shares.set_size(&stream.tenant, size, before.total.size());
                stream.last = before;
            }
            None => {
                shares.remove(&stream.tenant, size);
                totals.remove(&applied.key);
            }
        }
    }

    /// Removes idle streams, and returns the number of the others. Called for each read of the
    /// metrics: without further deltas, nothing else removes them.
    #[must_use]
    pub fn n_streams(&self) -> usize {
        let mut streams = self.streams.lock();
        streams.sweep(Instant::now());
        streams.totals.len()
    }
}

impl Stream {
    /// Returns the total with a delta, or the delta alone if it has another type.
    fn total_with(&self, point: &impl DeltaPoint) -> Total {
        let mut total = self.last.total.clone();
        if !point.add_to(&mut total) {
            total = point.first();
        }
        total
    }

    /// Checks that a delta does not precede the stream.
    fn check_order(&self, start_ns: u64, time_ns: u64) -> Result<(), String> {
        if start_ns < self.start_ns {
            return Err(format!(
                "delta starts at {start_ns} ns, before its stream at {} ns",
                self.start_ns
            ));
        }
        if time_ns < self.last.time_ns {
            return Err(format!(
                "out of order delta at {time_ns} ns, the stream is at {} ns",
                self.last.time_ns
            ));
        }
        Ok(())
    }
}

impl Streams {
    fn sweep(&mut self, now: Instant) {
        if self
            .swept
            .is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP_INTERVAL)
        {
            return;
        }
        self.swept = Some(now);
        let Self { totals, shares, .. } = self;
        totals.retain(|_, stream| {
            let is_kept = now.saturating_duration_since(stream.used) <= IDLE_TIME_MAX;
            if !is_kept {
                shares.remove(&stream.tenant, stream.last.total.size());
            }
            is_kept
        });
    }
}

impl AppliedDelta {
    fn first(key: StreamKey, request: RequestId, time_ns: u64) -> Self {
        Self {
            key,
            before: None,
            request,
            time_ns,
        }
    }

    /// Returns the size in memory besides the value itself.
    pub(super) fn size(&self) -> usize {
        match &self.before {
            Some(before) => before.total.numbers_size(),
            None => 0,
        }
    }
}

impl Total {
    /// Returns the size in memory, about.
    fn size(&self) -> usize {
        // Key and control byte of a table that is at least half full.
        2 * (size_of::<(StreamKey, Stream)>() + 1) + self.numbers_size()
    }

    /// Returns the size of the lists of numbers.
    fn numbers_size(&self) -> usize {
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
    fn flags_and_times(&mut self) -> (u32, &mut u64, u64) {
        (self.flags, &mut self.start_ns, self.time_ns)
    }

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

    fn set(&mut self, total: &Total) {
        if let Total::Number(total) = total {
            self.value = Some(*total);
        }
    }
}

impl DeltaPoint for HistogramPoint {
    fn flags_and_times(&mut self) -> (u32, &mut u64, u64) {
        (self.flags, &mut self.start_ns, self.time_ns)
    }

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

    fn set(&mut self, total: &Total) {
        if let Total::Histogram(total) = total {
            (self.count, self.sum) = (total.count, total.sum);
            self.bucket_counts.clone_from(&total.bucket_counts);
        }
    }
}

impl DeltaPoint for ExponentialPoint {
    fn flags_and_times(&mut self) -> (u32, &mut u64, u64) {
        (self.flags, &mut self.start_ns, self.time_ns)
    }

    fn first(&self) -> Total {
        let mut total = Total::Exponential(Self {
            scale: self.scale,
            sum: Some(0.0),
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
        true
    }

    fn set(&mut self, total: &Total) {
        if let Total::Exponential(total) = total {
            (self.scale, self.count, self.zero_count, self.sum) =
                (total.scale, total.count, total.zero_count, total.sum);
            self.positive.clone_from(&total.positive);
            self.negative.clone_from(&total.negative);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_shares::{SIZE_MAX_BYTES, STREAMS_MAX};
    use super::*;
    use proptest::prelude::*;

    /// Adds a delta to the stream with a number.
    fn add(
        streams: &DeltaStreams,
        number: usize,
        point: &mut impl DeltaPoint,
        now: Instant,
    ) -> Result<(), String> {
        let mut labels = LabelMap::default();
        labels.set("number", &number.to_string());
        streams
            .accumulate(
                streams.start_request(),
                &TenantLabels::default(),
                "m",
                &labels,
                point,
                now,
            )
            .map(drop)
    }

    fn number(start_ns: u64, time_ns: u64, value: i64) -> NumberPoint {
        NumberPoint {
            start_ns,
            time_ns,
            value: Some(Number::Int(value)),
            ..NumberPoint::default()
        }
    }

    #[test]
    fn deltas_are_added_in_order_and_repeated_ones_once() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let total_of = |start_ns, time_ns, value| {
            let mut point = number(start_ns, time_ns, value);
            add(&streams, 1, &mut point, now).map(|()| (point.start_ns, point.value))
        };
        let total = |value| Ok((10, Some(Number::Int(value))));
        assert_eq!(total_of(10, 20, 5), total(5));
        assert_eq!(total_of(20, 30, 7), total(12));
        assert_eq!(total_of(20, 30, 7), total(12), "a retry");
        assert!(total_of(10, 25, 1).unwrap_err().contains("out of order"));
        assert!(
            total_of(5, 40, 1)
                .unwrap_err()
                .contains("before its stream")
        );
        assert_eq!(total_of(30, 40, 1), total(13));
        let mut float = NumberPoint {
            value: Some(Number::Double(0.5)),
            ..number(40, 50, 0)
        };
        add(&streams, 1, &mut float, now).unwrap();
        assert_eq!(float.value, Some(Number::Double(13.5)));
    }

    /// A tenant read and changed the totals of another one.
    #[test]
    fn tenants_have_streams_of_their_own() {
        let streams = DeltaStreams::default();
        let total_of = |team: &str, sent: &str, time_ns, value| {
            let mut labels = LabelMap::default();
            labels.set("team", sent);
            let tenant = TenantLabels::new(&[("team".to_owned(), team.to_owned())]);
            let mut point = number(1, time_ns, value);
            streams
                .accumulate(
                    streams.start_request(),
                    &tenant,
                    "m",
                    &labels,
                    &mut point,
                    Instant::now(),
                )
                .map(|_| point.value)
        };
        assert_eq!(total_of("a", "", 10, 5), Ok(Some(Number::Int(5))));
        assert_eq!(total_of("b", "", 9, 1), Ok(Some(Number::Int(1))));
        assert_eq!(
            total_of("b", "a", 11, 1),
            Ok(Some(Number::Int(2))),
            "the label is replaced"
        );
        assert_eq!(total_of("a", "b", 20, 1), Ok(Some(Number::Int(6))));
        assert_eq!(streams.n_streams(), 2);
    }

    #[test]
    fn a_delta_is_rolled_back_unless_a_later_one_is_based_on_it() {
        let streams = DeltaStreams::default();
        let change_of = |time_ns, value| {
            let mut point = number(1, time_ns, value);
            let change = streams
                .accumulate(
                    streams.start_request(),
                    &TenantLabels::default(),
                    "m",
                    &LabelMap::default(),
                    &mut point,
                    Instant::now(),
                )
                .unwrap();
            (change, point.value)
        };
        let total = |value| Some(Number::Int(value));
        let (first, _) = change_of(10, 5);
        let size = streams.streams.lock().shares.size();
        let (second, _) = change_of(20, 7);
        let (third, _) = change_of(30, 1);
        streams.roll_back(second.unwrap());
        assert_eq!(change_of(40, 0).1, total(13), "the third contains it");
        streams.roll_back(third.unwrap());
        assert_eq!(change_of(50, 0).1, total(13));
        let (last, _) = change_of(60, 100);
        streams.roll_back(last.unwrap());
        let (repeated, value) = change_of(50, 0);
        assert!(repeated.is_none());
        assert_eq!(value, total(13));
        assert_eq!(streams.streams.lock().shares.size(), size);

        streams.roll_back(first.unwrap());
        assert_eq!(streams.n_streams(), 1);
    }

    /// A delta was identified by its time: one of an earlier stream, or of another request, was
    /// rolled back in its place.
    #[test]
    fn only_the_delta_of_the_request_itself_is_rolled_back() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let apply = |request, now| {
            streams
                .accumulate(
                    request,
                    &TenantLabels::default(),
                    "m",
                    &LabelMap::default(),
                    &mut number(1, 10, 5),
                    now,
                )
                .unwrap()
        };
        let first = streams.start_request();
        let started = apply(first, now);
        assert!(apply(first, now).is_none());
        streams.roll_back(started.unwrap());
        assert_eq!(
            (streams.n_streams(), streams.streams.lock().shares.size()),
            (0, 0)
        );

        let started = apply(first, now);
        let second = streams.start_request();
        assert!(apply(second, now).is_none());
        streams.roll_back(started.unwrap());
        assert_eq!(streams.n_streams(), 1, "the second may be stored");

        let later = now + 2 * IDLE_TIME_MAX;
        let after_idle_time = apply(streams.start_request(), later);
        let started_again = apply(streams.start_request(), later + 2 * IDLE_TIME_MAX);
        assert!(started_again.is_some());
        streams.roll_back(after_idle_time.unwrap());
        assert_eq!(streams.streams.lock().totals.len(), 1);
    }

    #[test]
    fn idle_streams_are_removed_and_their_number_is_limited() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        for key in 0..STREAMS_MAX {
            add(&streams, key, &mut number(1, 2, 1), now).unwrap();
        }
        let more = add(&streams, STREAMS_MAX, &mut number(1, 2, 1), now).unwrap_err();
        assert_eq!(
            more,
            "the streams with delta temporality of all senders would exceed the limit of 100000 streams or 134217728 bytes"
        );
        add(&streams, 0, &mut number(2, 3, 1), now + IDLE_TIME_MAX).unwrap();
        add(
            &streams,
            STREAMS_MAX,
            &mut number(1, 2, 1),
            now + IDLE_TIME_MAX + SWEEP_INTERVAL,
        )
        .unwrap();
        assert_eq!(streams.n_streams(), 2);
    }

    /// They used to take their memory until the next delta of any stream.
    #[test]
    fn idle_streams_are_removed_without_further_deltas() {
        let streams = DeltaStreams::default();
        let earlier = Instant::now().checked_sub(2 * IDLE_TIME_MAX).unwrap();
        add(&streams, 0, &mut number(1, 2, 1), earlier).unwrap();
        assert_eq!(streams.n_streams(), 0);
    }

    #[test]
    fn a_total_that_grows_beyond_the_limit_stays_as_it_is() {
        const N_LARGE: usize = 100_000;
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let point = |time_ns, n_buckets| HistogramPoint {
            time_ns,
            count: 1,
            bucket_counts: vec![1; n_buckets],
            explicit_bounds: vec![0.5; n_buckets - 1],
            ..HistogramPoint::default()
        };
        let n_streams = SIZE_MAX_BYTES / (16 * N_LARGE) + 1;
        for key in 0..n_streams {
            add(&streams, key, &mut point(1, 2), now).unwrap();
        }
        let grow = |key| add(&streams, key, &mut point(2, N_LARGE), now);
        let grown: Vec<_> = (0..n_streams).map(grow).collect();
        let full = grown.iter().filter(|grown| grown.is_err()).count();
        let last = grown.last();
        assert!(full == 1 && last.is_some_and(Result::is_err), "{full}");
        assert!(streams.streams.lock().shares.size() <= SIZE_MAX_BYTES);
        let mut small = point(3, 2);
        add(&streams, n_streams - 1, &mut small, now).unwrap();
        assert_eq!(small.bucket_counts, [2, 2]);
        add(&streams, 0, &mut point(3, 2), now).unwrap();
        add(&streams, n_streams - 1, &mut point(4, N_LARGE), now).unwrap();
    }

    #[test]
    fn histograms_with_other_bounds_begin_again() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let total_of = |time_ns, bounds: &[f64], counts: &[u64]| {
            let mut point = HistogramPoint {
                time_ns,
                count: counts.iter().sum(),
                sum: Some(1.5),
                bucket_counts: counts.to_vec(),
                explicit_bounds: bounds.to_vec(),
                ..HistogramPoint::default()
            };
            add(&streams, 1, &mut point, now).unwrap();
            (point.count, point.sum, point.bucket_counts)
        };
        assert_eq!(total_of(1, &[1.0], &[2, 3]), (5, Some(1.5), vec![2, 3]));
        assert_eq!(total_of(2, &[1.0], &[1, 0]), (6, Some(3.0), vec![3, 3]));
        assert_eq!(total_of(3, &[2.0], &[1, 1]), (2, Some(1.5), vec![1, 1]));
    }

    /// Returns an exponential point of observations above 0 at a scale.
    fn exponential(time_ns: u64, scale: i32, values: &[f64]) -> ExponentialPoint {
        let idx = |value: f64| ((value.log2() * f64::from(scale).exp2()).ceil() - 1.0) as i32;
        let first = values.iter().map(|value| idx(*value)).min().unwrap_or(0);
        let mut counts = Vec::new();
        for value in values {
            let at = (idx(*value) - first) as usize;
            counts.resize(counts.len().max(at + 1), 0);
            counts[at] += 1;
        }
        ExponentialPoint {
            time_ns,
            scale,
            count: values.len() as u64,
            sum: Some(values.iter().sum()),
            positive: Some(Buckets {
                offset: first,
                counts,
            }),
            ..ExponentialPoint::default()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The total of the deltas is the histogram of all values at a scale at which it has few
        /// buckets.
        #[test]
        fn totals_of_exponential_histograms_count_all_values(
            parts in prop::collection::vec((0..4_i32, prop::collection::vec(1e-3..1e6_f64, 1..20)), 1..6),
        ) {
            let streams = DeltaStreams::default();
            let now = Instant::now();
            let mut all = Vec::new();
            for ((scale, values), time_ns) in parts.iter().zip(1..) {
                let mut point = exponential(time_ns, *scale, values);
                all.extend_from_slice(values);
                add(&streams, 1, &mut point, now).unwrap();
                prop_assert_eq!(point.count, all.len() as u64);
                if time_ns > 1 {
                    let whole = exponential(time_ns, point.scale, &all).positive.unwrap();
                    let total = point.positive.unwrap();
                    prop_assert!(total.counts.len() as i64 <= BUCKETS_MAX);
                    // The total may have empty buckets at its ends.
                    let sparse = |buckets: &Buckets| {
                        (buckets.offset..).zip(buckets.counts.clone()).filter(|(_, n)| *n > 0).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(sparse(&total), sparse(&whole));
                }
            }
        }
    }

    #[test]
    fn buckets_far_apart_are_merged_at_a_low_scale() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let point = |time_ns, offset| ExponentialPoint {
            time_ns,
            scale: 8,
            count: 1,
            positive: Some(Buckets {
                offset,
                counts: vec![1],
            }),
            ..ExponentialPoint::default()
        };
        add(&streams, 1, &mut point(1, i32::MIN), now).unwrap();
        let mut last = point(2, i32::MAX);
        add(&streams, 1, &mut last, now).unwrap();
        let buckets = last.positive.unwrap();
        assert!(
            buckets.counts.len() as i64 <= BUCKETS_MAX && buckets.counts.iter().sum::<u64>() == 2,
            "{buckets:?}"
        );
    }
}
