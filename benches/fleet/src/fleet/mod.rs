//! A fleet of GPU machines under kube-prometheus, made up: which series it has, and the value of each at any time.
//!
//! Everything is computed from a seed, nothing is kept: labels and values can be had for any series and round, in any
//! order and as often as one likes, which is what lets a bench check what a server has stored. Used by the commands and,
//! by the benches; so it knows only `varve-tsdb`'s labels and samples.
//!
//! # Shape
//! A fleet is a list of *places*, one for each active series. First come the control planes, then the machines; each
//! kind has a template (`exporters`) of which every control plane or machine has a copy. At a place series follow one
//! another: those about a pod end with it, with a staleness marker, and in the same round those of the next pod begin.
//! A [`SeriesId`] is a place and the *generation* of its pod. Time counts in *rounds*, the scrapes of a target; round 0
//! is the first.
//!
//! # What holds
//! 1. Equal options give equal series and values, on every machine.
//! 2. Two series never have equal labels.
//! 3. Buckets of a histogram ascend over `le`, the last one is its `_count`; counters go back only where their process
//!    started anew.

mod exporters;
mod identity;
mod labels;
mod model;
mod noise;
mod template;
#[cfg(test)]
mod tests;

use std::ops::Range;

use varve_tsdb::{Labels, STALE_NAN_BITS, Sample};

use identity::Node;
use model::Moment;
use noise::{below, mix2};
use template::{Job, Row, Subject};

/// Machines that share a control plane.
const NODES_PER_PLANE: usize = 200;
/// Kinds of objects that a control plane of few machines serves, and all that there are.
const RESOURCES_MIN: usize = 2;
const RESOURCES_MAX: usize = 40;
/// Processes start anew after three days, and pods without churn are up to a week old, at 30 s.
const PROCESS_ROUNDS: i64 = 8_640;
const POD_AGE_ROUNDS_MAX: i64 = 20_160;
/// A pod lives for at least so many rounds, whatever the churn.
const POD_ROUNDS_MIN: i64 = 4;
/// The most series that a fleet can have active.
pub(crate) const ACTIVE_SERIES_MAX: usize = 1 << 30;
/// The most series that a machine can have.
pub(crate) const SERIES_PER_NODE_MAX: usize = 100_000;

/// Which fleet it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetOptions {
    /// Series that are active at any time, at most [`ACTIVE_SERIES_MAX`]; the last machine may be cut.
    pub active_series: usize,
    /// Series of a machine, those about its pods included; at most [`SERIES_PER_NODE_MAX`].
    pub series_per_node: usize,
    /// Milliseconds between two scrapes of a target.
    pub interval_ms: i64,
    /// Time of round 0 in milliseconds; targets are scraped spread over the interval from then on.
    pub start_ms: i64,
    /// Share of the pods that are replaced in an hour.
    pub churn_per_hour: f64,
    pub seed: u64,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            active_series: 200_000,
            series_per_node: 2_100,
            interval_ms: 30_000,
            start_ms: 1_760_000_400_000,
            churn_per_hour: 0.0,
            seed: 1,
        }
    }
}

/// A series of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId {
    /// Its place, less than [`Fleet::n_places`].
    pub place: u32,
    /// Which pod of the place it is about; 0 if it is not about a pod.
    pub generation: u32,
}

/// A made-up fleet; see the module.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    plane: Vec<Row>,
    n_planes: u32,
    node: Vec<Row>,
    /// Rounds that a pod lives.
    pod_rounds: i64,
}

/// A place, found.
struct Place<'a> {
    row: &'a Row,
    /// The machine, or the control plane as if it were one.
    node: Node,
}

/// Where a series is in its process' or pod's life.
struct Life {
    generation: u32,
    elapsed: u64,
}

impl Fleet {
    /// Lays out a fleet.
    ///
    /// # Panics
    /// If an option is 0 or negative that must not be, or beyond its bound.
    pub fn new(options: FleetOptions) -> Self {
        assert!((1..=ACTIVE_SERIES_MAX).contains(&options.active_series), "active series are out of bounds");
        assert!((1..=SERIES_PER_NODE_MAX).contains(&options.series_per_node), "series per node are out of bounds");
        assert!(options.interval_ms > 0, "the interval must be more than 0");
        let n_nodes = options.active_series.div_ceil(options.series_per_node);
        let n_planes = u32::try_from(n_nodes.div_ceil(NODES_PER_PLANE)).expect("fewer than places");
        let n_resources = (n_nodes * RESOURCES_MAX / NODES_PER_PLANE * 2).clamp(RESOURCES_MIN, RESOURCES_MAX);
        Self {
            options,
            plane: exporters::control_plane(n_resources),
            n_planes,
            node: exporters::machine(options.series_per_node),
            pod_rounds: pod_rounds(&options),
        }
    }

    pub fn options(&self) -> &FleetOptions {
        &self.options
    }

    /// Counts the series that are active at any time.
    pub fn n_places(&self) -> u32 {
        u32::try_from(self.options.active_series).expect("checked when laid out")
    }

    /// Returns the series that is active at a place in a round.
    pub fn series_at(&self, place: u32, round: i64) -> SeriesId {
        let generation = self.life(&self.place(place), round).generation;
        SeriesId { place, generation }
    }

    /// Returns when a round scrapes the series of a place.
    pub fn timestamp_ms(&self, place: u32, round: i64) -> i64 {
        let Place { row, node } = self.place(place);
        // One kube-state-metrics tells of all machines.
        let node_seed = if row.job == Job::KubeStateMetrics { self.options.seed } else { node.seed };
        let interval = self.options.interval_ms.unsigned_abs();
        let phase_ms = below(mix2(node_seed, row.job as u64), interval);
        self.options.start_ms + round * self.options.interval_ms + phase_ms.cast_signed()
    }

    /// Returns the labels of a series.
    pub fn labels(&self, series: SeriesId) -> Labels {
        let Place { row, node } = self.place(series.place);
        labels::labels(row, node, series.generation)
    }

    /// Returns the value of a series in a round: the staleness marker where it has just ended, `None` before it began
    /// and after that.
    pub fn value(&self, series: SeriesId, round: i64) -> Option<f64> {
        if round < 0 {
            return None;
        }
        let place = self.place(series.place);
        let life = self.life(&place, round);
        if life.generation == series.generation {
            return Some(self.value_of(&place, series, round, life.elapsed));
        }
        let has_just_ended = life.generation == series.generation + 1 && life.elapsed == 0 && round > 0;
        has_just_ended.then_some(f64::from_bits(STALE_NAN_BITS))
    }

    /// Hands out what a round finds at some places: a sample of each active series, before it the staleness marker of the
    /// one that it replaces.
    pub fn scrape(&self, places: Range<u32>, round: i64, mut each: impl FnMut(SeriesId, Sample)) {
        for place in places {
            let timestamp_ms = self.timestamp_ms(place, round);
            let series = self.series_at(place, round);
            let before = series.generation.checked_sub(1).map(|generation| SeriesId { place, generation });
            for series in before.into_iter().chain([series]) {
                if let Some(value) = self.value(series, round) {
                    each(series, Sample { timestamp_ms, value });
                }
            }
        }
    }

    /// Lists the places of each control plane and machine.
    pub fn machines(&self) -> impl Iterator<Item = Range<u32>> {
        let ends = (1..=self.n_planes).map(|n| n * self.plane.len() as u32);
        let (planes_end, node) = (self.planes_end(), self.node.len() as u32);
        let ends = ends.chain((1..).map(move |n: u32| planes_end.saturating_add(n.saturating_mul(node))));
        let n_places = self.n_places();
        ends.scan(0, move |start, end| {
            let range = *start..end.min(n_places);
            *start = range.end;
            (!range.is_empty()).then_some(range)
        })
    }

    fn planes_end(&self) -> u32 {
        self.n_planes * self.plane.len() as u32
    }

    fn place(&self, place: u32) -> Place<'_> {
        debug_assert!(place < self.n_places());
        let at_node = place.checked_sub(self.planes_end());
        let (rows, index, kind) = match at_node {
            Some(at) => (&self.node, at, 1),
            None => (&self.plane, place, 0),
        };
        let n_rows = rows.len() as u32;
        let (index, row) = (index / n_rows, index % n_rows);
        let seed = mix2(self.options.seed, u64::from(index) << 1 | kind);
        Place { row: &rows[row as usize], node: Node { index, seed } }
    }

    fn life(&self, place: &Place<'_>, round: i64) -> Life {
        let (of, span, age_max) = match place.row.subject.slot() {
            Some(slot) => (u64::from(slot) << 8, self.pod_rounds, self.pod_rounds.min(POD_AGE_ROUNDS_MAX)),
            None => (place.row.job as u64 | 1 << 32, PROCESS_ROUNDS, PROCESS_ROUNDS),
        };
        let age = below(mix2(place.node.seed, of), age_max.unsigned_abs());
        let since = round.max(0).unsigned_abs() + age;
        let (life, elapsed) = (since / span.unsigned_abs(), since % span.unsigned_abs());
        // Processes that start anew keep their series.
        let generation =
            if place.row.subject == Subject::Machine { 0 } else { u32::try_from(life).unwrap_or(u32::MAX) };
        Life { generation, elapsed }
    }

    fn value_of(&self, place: &Place<'_>, series: SeriesId, round: i64, elapsed: u64) -> f64 {
        let key = u64::from(place.row.key) << 32 | u64::from(series.generation);
        let timestamp_ms = if place.row.model.tells_time() { self.timestamp_ms(series.place, round) } else { 0 };
        let at = Moment {
            seed: mix2(place.node.seed, key),
            elapsed,
            now_ms: timestamp_ms.unsigned_abs(),
            interval_ms: self.options.interval_ms.unsigned_abs(),
        };
        place.row.model.value(&at)
    }
}

fn pod_rounds(options: &FleetOptions) -> i64 {
    if options.churn_per_hour <= 0.0 {
        return i64::MAX >> 1;
    }
    let rounds = 3_600_000.0 / options.churn_per_hour / options.interval_ms as f64;
    // A cast of a float saturates, and the bounds are far from the type's.
    (rounds.round() as i64).clamp(POD_ROUNDS_MIN, i64::MAX >> 1)
}
