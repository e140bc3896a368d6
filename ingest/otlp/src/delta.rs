//! Totals of the streams with delta temporality: each delta is added to the total, which is stored.
//!
//! As in the collector's `deltatocumulative` processor, which Prometheus uses: a stream starts with
//! its first delta, the newest delta is rejected if it starts before its stream, and a stream without
//! deltas for [`IDLE_TIME_MAX`] is removed. A histogram with other bounds replaces the total. An
//! exponential histogram takes the lower scale of both, and a lower one if it has more than
//! [`BUCKETS_MAX`](super::bucket_merge::BUCKETS_MAX) buckets, besides empty ones at its ends.
//!
//! Senders with several consumers, such as the collector's queue, reorder the deltas of a stream.
//! The processor rejects all but the newest. Here a late delta is added to the total, too, if it is
//! at most [`DeltaRequest::late_delta_max`] older than the newest one. The samples in between are
//! stored already, so the new total gets a sample one millisecond after the last. A stream knows the
//! times of its deltas ([`CoveredTime`]), so each is counted once.
//!
//! A repeated delta, for example of a request that was not stored, returns the current total again.
//!
//! Totals are lost at a restart, and for an idle stream. Then they begin again at the next delta: the
//! caller stores a zero at its start, which is a counter reset. Samples of the earlier total may be
//! in the store, some of them of deltas that are sent again. So the caller looks up the series first
//! ([`Added::AskStore`]): a delta that has a sample is not added, and the new total follows the
//! newest one.
//!
//! Bounds: [`StreamShares`] limits the streams of all senders, and of each tenant; others are
//! rejected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_model::TenantLabels;

use super::covered_time::CoveredTime;
use super::delta_point::{DeltaPoint, Total};
use super::labels::LabelMap;
use super::staleness::is_stale;
use super::stream_key::{StreamHasher, StreamKey};
use super::stream_shares::StreamShares;

/// Maximum time between two deltas of a stream.
const IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// Nanoseconds of a millisecond, the unit of stored timestamps.
const NS_PER_MS: u64 = 1_000_000;
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
    last_delta: DeltaId,
    /// Number of late deltas that were added.
    n_late: u64,
}

#[derive(Debug)]
struct Stream {
    tenant: Arc<TenantLabels>,
    start_ns: u64,
    /// When the first delta ended.
    first_end_ns: u64,
    /// The newest sample of an earlier total. Deltas up to it may be in that.
    earlier_ns: u64,
    last: LastDelta,
    used: Instant,
}

/// The state of a stream after the delta that was added last.
#[derive(Debug)]
struct LastDelta {
    id: DeltaId,
    total: Total,
    covered: CoveredTime,
    /// The time of the sample that has the total.
    sample_ns: u64,
    /// The last request that sent the delta, or repeated one.
    request: RequestId,
}

/// How a delta arrives in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// After all others.
    InOrder,
    /// Before others, which arrived earlier.
    Late,
    /// It is in the total already.
    Repeated,
}

/// Identifies a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestId(u64);

/// Identifies a delta that was added to a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DeltaId(u64);

/// A request with deltas.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaRequest<'a> {
    pub(super) id: RequestId,
    pub(super) tenant: &'a TenantLabels,
    /// Maximum time by which a delta may end before the newest one of its stream.
    pub(super) late_delta_max: Duration,
}

/// The outcome of a delta.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is moved once")]
pub(super) enum Added {
    /// It was added, or it is in the total already.
    Done(Option<AppliedDelta>),
    /// It is in a total of another type, which has a sample.
    Nothing,
    /// It may be in an earlier total: ask the store, and try again.
    AskStore,
}

/// A delta that a request has added to its stream.
#[derive(Debug)]
pub(super) struct AppliedDelta {
    key: StreamKey,
    /// The state before. `None` if the delta started the stream.
    before: Option<LastDelta>,
    id: DeltaId,
    request: RequestId,
}

impl DeltaStreams {
    /// Returns the id of a new request.
    pub(super) fn start_request(&self) -> RequestId {
        let last_request = &mut self.streams.lock().last_request;
        last_request.0 += 1;
        *last_request
    }

    /// Returns the key of a stream.
    pub(super) fn key(&self, tenant: &TenantLabels, name: &str, labels: &LabelMap) -> StreamKey {
        self.hasher.key(tenant, name, labels)
    }

    /// Adds a delta of a request to the total of its stream, and replaces it by the total.
    /// `earlier_ns` is the time of the newest sample of the series in the store, 0 without one;
    /// `None` if the store was not asked.
    ///
    /// # Errors
    /// The reason why the data point is rejected.
    pub(super) fn accumulate(
        &self,
        request: DeltaRequest<'_>,
        key: StreamKey,
        point: &mut impl DeltaPoint,
        earlier_ns: Option<u64>,
        now: Instant,
    ) -> Result<Added, String> {
        if is_stale(point.flags()) {
            return Ok(Added::Done(None));
        }
        let mut streams = self.streams.lock();
        streams.sweep(now);
        streams.last_delta.0 += 1;
        let Streams {
            totals,
            shares,
            last_delta,
            n_late,
            ..
        } = &mut *streams;
        let id = *last_delta;
        let mut applied = AppliedDelta {
            key,
            before: None,
            id,
            request: request.id,
        };
        let Some(stream) = totals.get_mut(&key) else {
            let Some(earlier_ns) = earlier_ns else {
                return Ok(Added::AskStore);
            };
            let last = LastDelta::first(id, request.id, point, earlier_ns);
            let tenant = shares.add(request.tenant, last.size())?;
            totals.insert(key, Stream::start(tenant, last, point, earlier_ns, now));
            return Ok(Added::Done(Some(applied)));
        };

        let arrival = stream.arrival_of(point, request.late_delta_max)?;
        let is_new = arrival != Arrival::Repeated;
        if is_new && point.time_ns() <= stream.earlier_ns && earlier_ns.is_none() {
            return Ok(Added::AskStore);
        }
        stream.used = now;
        if arrival == Arrival::Repeated {
            // The request that sent the delta first must not roll it back: this one may store it.
            stream.last.request = request.id;
        } else {
            let mut last = stream.last.followed_by(point, arrival)?;
            (last.id, last.request) = (id, request.id);
            shares.resize(&stream.tenant, stream.last.size(), last.size())?;
            *n_late += u64::from(arrival == Arrival::Late);
            applied.before = Some(std::mem::replace(&mut stream.last, last));
        }
        if !point.set(&stream.last.total) {
            return Ok(Added::Nothing);
        }
        point.set_times(stream.start_ns, stream.last.sample_ns);
        Ok(Added::Done(applied.before.is_some().then_some(applied)))
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
        if (last.request, last.id) != (applied.request, applied.id) {
            return;
        }
        let size = last.size();
        match applied.before {
            Some(before) => {
                shares.set_size(&stream.tenant, size, before.size());
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

    /// Returns the number of deltas that arrived after a later one of their stream, and were added.
    #[must_use]
    pub fn n_late(&self) -> u64 {
        self.streams.lock().n_late
    }
}

impl Stream {
    /// Starts a stream with its first delta, and moves the time of the delta to that of its sample.
    fn start(
        tenant: Arc<TenantLabels>,
        last: LastDelta,
        point: &mut impl DeltaPoint,
        earlier_ns: u64,
        now: Instant,
    ) -> Self {
        let start_ns = point.start_ns();
        let first_end_ns = point.time_ns();
        point.set_times(start_ns, last.sample_ns);
        Self {
            tenant,
            start_ns,
            first_end_ns,
            earlier_ns,
            last,
            used: now,
        }
    }

    /// Returns how a delta arrives.
    ///
    /// # Errors
    /// The reason why the data point is rejected.
    fn arrival_of(
        &self,
        point: &impl DeltaPoint,
        late_delta_max: Duration,
    ) -> Result<Arrival, String> {
        let time_ns = point.time_ns();
        let covered = &self.last.covered;
        let newest_ns = covered.newest_ns();
        // A sender that always sets the same start: the first delta covers less than it says.
        let has_fixed_start =
            self.start_ns > 0 && point.start_ns() == self.start_ns && time_ns < self.first_end_ns;
        if covered.contains(time_ns) && !has_fixed_start {
            return Ok(Arrival::Repeated);
        }
        if time_ns > newest_ns {
            let start_ns = point.start_ns();
            if start_ns >= self.start_ns {
                return Ok(Arrival::InOrder);
            }
            return Err(format!(
                "delta starts at {start_ns} ns, before its stream at {} ns",
                self.start_ns
            ));
        }
        let is_within = newest_ns - time_ns <= nanoseconds(late_delta_max);
        let reason = match (is_within, covered.is_known(time_ns) && !has_fixed_start) {
            (true, true) => return Ok(Arrival::Late),
            (false, _) => "later than --ingest.late-delta-window allows",
            (true, false) => "where the stream does not know its deltas",
        };
        Err(format!(
            "out of order delta at {time_ns} ns, the stream is at {newest_ns} ns: {reason}"
        ))
    }
}

impl LastDelta {
    /// Returns the state after the first delta of a stream. Between an earlier total and its sample
    /// there is room for a zero.
    fn first(id: DeltaId, request: RequestId, point: &impl DeltaPoint, earlier_ns: u64) -> Self {
        let time_ns = point.time_ns();
        Self {
            id,
            total: point.first(),
            covered: CoveredTime::of_first(point.start_ns(), time_ns),
            sample_ns: if time_ns > earlier_ns {
                time_ns
            } else {
                earlier_ns.saturating_add(2 * NS_PER_MS)
            },
            request,
        }
    }

    /// Returns the state after another delta. The next delta replaces a total of another type.
    ///
    /// # Errors
    /// If a late delta has another type.
    fn followed_by(&self, point: &impl DeltaPoint, arrival: Arrival) -> Result<Self, String> {
        let mut total = self.total.clone();
        if !point.add_to(&mut total) {
            if arrival == Arrival::Late {
                return Err("out of order delta of another type or with other bounds".to_owned());
            }
            total = point.first();
        }
        let time_ns = point.time_ns();
        let is_after_late = self.sample_ns != self.covered.newest_ns();
        // Each total has a sample of its own.
        let sample_ns = match arrival {
            Arrival::InOrder if !is_after_late => time_ns,
            _ => time_ns.max(self.sample_ns.saturating_add(NS_PER_MS)),
        };
        Ok(Self {
            total,
            covered: self.covered.with(point.start_ns(), time_ns),
            sample_ns,
            ..*self
        })
    }

    /// Returns the size in memory, about.
    fn size(&self) -> usize {
        // Key and control byte of a table that is at least half full.
        2 * (size_of::<(StreamKey, Stream)>() + 1) + self.lists_size()
    }

    /// Returns the size of the lists.
    fn lists_size(&self) -> usize {
        self.total.numbers_size() + self.covered.size()
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
                shares.remove(&stream.tenant, stream.last.size());
            }
            is_kept
        });
    }
}

impl AppliedDelta {
    /// Returns `true` if the delta started its stream.
    pub(super) fn is_first(&self) -> bool {
        self.before.is_none()
    }

    /// Returns the size in memory besides the value itself.
    pub(super) fn size(&self) -> usize {
        self.before.as_ref().map_or(0, LastDelta::lists_size)
    }
}

/// Returns a time as the unsigned nanoseconds of OTLP.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::bucket_merge::BUCKETS_MAX;
    use super::super::message::{Buckets, ExponentialPoint, HistogramPoint, Number, NumberPoint};
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
        accumulate(
            streams,
            start_request(streams, &TenantLabels::default(), Duration::ZERO),
            &labels,
            point,
            now,
        )
        .map(drop)
    }

    /// Adds a delta of the stream with these labels. The store has no earlier total.
    fn accumulate(
        streams: &DeltaStreams,
        request: DeltaRequest<'_>,
        labels: &LabelMap,
        point: &mut impl DeltaPoint,
        now: Instant,
    ) -> Result<Option<AppliedDelta>, String> {
        let key = streams.key(request.tenant, "m", labels);
        match streams.accumulate(request, key, point, Some(0), now)? {
            Added::Done(applied) => Ok(applied),
            added => panic!("{added:?}"),
        }
    }

    fn start_request<'a>(
        streams: &DeltaStreams,
        tenant: &'a TenantLabels,
        late_delta_max: Duration,
    ) -> DeltaRequest<'a> {
        DeltaRequest {
            id: streams.start_request(),
            tenant,
            late_delta_max,
        }
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
        assert_eq!(total_of(20, 25, 1), total(12), "a part of a counted one");
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

    #[test]
    fn a_late_delta_of_a_sender_with_a_fixed_start_is_rejected() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        add(&streams, 1, &mut number(5, 10, 1), now).unwrap();
        let late = add(&streams, 1, &mut number(5, 8, 1), now).unwrap_err();
        assert!(late.starts_with("out of order delta at 8 ns"), "{late}");
        add(&streams, 1, &mut number(5, 20, 1), now).unwrap();
        // Without a start, nothing claims to be covered.
        add(&streams, 2, &mut number(0, 10, 1), now).unwrap();
        let late = add(&streams, 2, &mut number(0, 8, 1), now).unwrap_err();
        assert!(
            late.ends_with("--ingest.late-delta-window allows"),
            "{late}"
        );
        let mut repeated = number(5, 10, 1);
        add(&streams, 1, &mut repeated, now).unwrap();
        assert_eq!(repeated.value, Some(Number::Int(2)));
    }

    /// The collector's queue has ten consumers, which reorder deltas: 3 of 300 were lost.
    #[test]
    fn late_deltas_are_added_once() {
        let streams = DeltaStreams::default();
        let ms = |ms: u64| 1_000_000 * ms;
        let total_of = |start_ms, time_ms, value| {
            let mut point = number(ms(start_ms), ms(time_ms), value);
            let tenant = TenantLabels::default();
            let request = start_request(&streams, &tenant, Duration::from_millis(100));
            accumulate(
                &streams,
                request,
                &LabelMap::default(),
                &mut point,
                Instant::now(),
            )
            .map(|_| (point.time_ns / 1_000_000, point.value))
        };
        let total = |time_ms, value| Ok((time_ms, Some(Number::Int(value))));
        assert_eq!(total_of(1_000, 1_010, 1), total(1_010, 1));
        assert_eq!(total_of(1_020, 1_030, 4), total(1_030, 5));
        assert_eq!(total_of(1_010, 1_020, 2), total(1_031, 7), "late");
        assert_eq!(total_of(1_010, 1_020, 2), total(1_031, 7), "a retry");
        assert_eq!(total_of(1_020, 1_030, 4), total(1_031, 7), "a retry");
        assert_eq!(
            total_of(990, 1_000, 8),
            total(1_032, 15),
            "before the first"
        );
        assert_eq!(total_of(1_030, 1_032, 16), total(1_033, 31), "the next one");
        assert_eq!(total_of(1_032, 1_040, 32), total(1_040, 63));
        assert_eq!(total_of(1_050, 1_160, 0), total(1_160, 63));
        assert_eq!(
            total_of(1_040, 1_050, 1).unwrap_err(),
            "out of order delta at 1050000000 ns, the stream is at 1160000000 ns: later than --ingest.late-delta-window allows"
        );
        assert_eq!(total_of(1_020, 1_030, 4), total(1_160, 63), "known still");
        assert_eq!(streams.n_late(), 2);
    }

    #[test]
    fn a_late_delta_is_rolled_back() {
        let streams = DeltaStreams::default();
        let tenant = TenantLabels::default();
        let deltas = [(100, 1), (50, 2), (60, 4)];
        let mut points = deltas.map(|(time, value)| number(time - 10, time, value));
        let applied = points.each_mut().map(|point| {
            let request = start_request(&streams, &tenant, Duration::from_secs(1));
            let labels = LabelMap::default();
            accumulate(&streams, request, &labels, point, Instant::now())
                .unwrap()
                .unwrap()
        });
        let [_, second, third] = applied;
        streams.roll_back(third);
        streams.roll_back(second);
        let request = start_request(&streams, &tenant, Duration::from_secs(1));
        let mut again = number(50, 60, 4);
        accumulate(
            &streams,
            request,
            &LabelMap::default(),
            &mut again,
            Instant::now(),
        )
        .unwrap();
        assert_eq!(again.value, Some(Number::Int(5)));
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
            accumulate(
                &streams,
                start_request(&streams, &tenant, Duration::ZERO),
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
            let mut point = number(time_ns - 10, time_ns, value);
            let change = accumulate(
                &streams,
                start_request(&streams, &TenantLabels::default(), Duration::ZERO),
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
        let tenant = TenantLabels::default();
        let start_request = || start_request(&streams, &tenant, Duration::ZERO);
        let apply = |request, now| {
            accumulate(
                &streams,
                request,
                &LabelMap::default(),
                &mut number(1, 10, 5),
                now,
            )
            .unwrap()
        };
        let first = start_request();
        let started = apply(first, now);
        assert!(apply(first, now).is_none());
        streams.roll_back(started.unwrap());
        assert_eq!(
            (streams.n_streams(), streams.streams.lock().shares.size()),
            (0, 0)
        );

        let started = apply(first, now);
        let second = start_request();
        assert!(apply(second, now).is_none());
        streams.roll_back(started.unwrap());
        assert_eq!(streams.n_streams(), 1, "the second may be stored");

        let later = now + 2 * IDLE_TIME_MAX;
        let after_idle_time = apply(start_request(), later);
        let started_again = apply(start_request(), later + 2 * IDLE_TIME_MAX);
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

    #[test]
    fn a_repeated_delta_of_another_layout_gets_the_layout_of_the_total() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let point = |time_ns, bounds: &[f64]| HistogramPoint {
            start_ns: time_ns - 10,
            time_ns,
            count: 1,
            bucket_counts: vec![1; bounds.len() + 1],
            explicit_bounds: bounds.to_vec(),
            ..HistogramPoint::default()
        };
        add(&streams, 1, &mut point(20, &[1.0]), now).unwrap();
        add(&streams, 1, &mut point(30, &[2.0, 3.0]), now).unwrap();
        let mut repeated = point(20, &[1.0]);
        add(&streams, 1, &mut repeated, now).unwrap();
        assert_eq!(repeated.explicit_bounds, [2.0, 3.0]);
        assert_eq!((repeated.bucket_counts.len(), repeated.time_ns), (3, 30));

        let mut number = number(20, 30, 5);
        let tenant = TenantLabels::default();
        let mut labels = LabelMap::default();
        labels.set("number", "1");
        let key = streams.key(&tenant, "m", &labels);
        let request = start_request(&streams, &tenant, Duration::ZERO);
        let added = streams.accumulate(request, key, &mut number, None, now);
        assert!(matches!(added, Ok(Added::Nothing)), "{added:?}");
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

    /// The Python SDK sends up to 160 counts, of which the last are 0: the scale fell for ever.
    #[test]
    fn empty_buckets_at_the_ends_do_not_lower_the_scale() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let point = |time_ns, offset, n_empty: usize, n: usize| ExponentialPoint {
            time_ns,
            scale: 3,
            count: n as u64,
            positive: Some(Buckets {
                offset,
                counts: [vec![0; n_empty], vec![1; n], vec![0; n_empty]].concat(),
            }),
            ..ExponentialPoint::default()
        };
        add(&streams, 1, &mut point(1, 35 - 40, 40, 120), now).unwrap();
        let mut second = point(2, 33, 0, 128);
        add(&streams, 1, &mut second, now).unwrap();
        assert_eq!(second.scale, 3);
        let mut third = point(3, 33, 0, 161);
        add(&streams, 1, &mut third, now).unwrap();
        assert_eq!((third.scale, third.count), (2, 120 + 128 + 161));
        let mut empty = point(4, i32::MAX - 200, 100, 0);
        add(&streams, 1, &mut empty, now).unwrap();
        assert_eq!((empty.scale, empty.positive), (2, third.positive));
    }

    #[test]
    fn the_wider_zero_bucket_takes_the_observations_in_it() {
        let streams = DeltaStreams::default();
        let now = Instant::now();
        let point = |time_ns, zero_threshold, offset| ExponentialPoint {
            time_ns,
            zero_threshold,
            count: 5,
            zero_count: 1,
            positive: Some(Buckets {
                offset,
                counts: vec![1, 2],
            }),
            negative: Some(Buckets {
                offset: 3,
                counts: vec![1],
            }),
            ..ExponentialPoint::default()
        };
        let mut first = point(1, 0.25, -2);
        add(&streams, 1, &mut first, now).unwrap();
        assert_eq!(first.zero_threshold, 0.25);
        // 0.7 is in the bucket (0.5, 1], which has index -1.
        let mut second = point(2, 0.7, 2);
        add(&streams, 1, &mut second, now).unwrap();
        assert_eq!((second.zero_threshold, second.zero_count), (1.0, 2 + 3));
        let positive = second.positive.unwrap();
        assert_eq!((positive.offset, positive.counts), (0, vec![0, 0, 1, 2]));
        assert_eq!(second.negative.unwrap().counts, [2]);
        let mut third = point(3, 0.0, 2);
        add(&streams, 1, &mut third, now).unwrap();
        assert_eq!((third.zero_threshold, third.zero_count), (1.0, 6));
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
