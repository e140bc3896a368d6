//! A simulated fleet of GPU machines under kube-prometheus: its series, and the value of each
//! series at any time.
//!
//! Everything is computed from a seed and nothing is stored. Labels and values of any series and
//! round can be computed in any order, so a benchmark can verify the stored samples. Used by the
//! commands and by the benches.
//!
//! # Shape
//! A fleet is a list of *places*, one for each active series: first the control planes, then the
//! machines. Each kind has a template (`exporters`), and every control plane or machine is a copy
//! of it. Series succeed one another at a place: the series of a pod end with the pod, with a
//! staleness marker, and the series of the next pod begin in the same round. A [`SeriesId`] is a
//! place and the *generation* of its pod. Time is counted in *rounds*, the scrapes of a target. The
//! first round is 0.
//!
//! Invariants
//! 1. Equal options give equal series and values, on every machine.
//! 2. Two series never have equal labels.
//! 3. Buckets of a histogram ascend over `le`, and the last one equals `_count`. Counters decrease
//!    only when their process restarts.

mod exporters;
mod identity;
mod labels;
mod model;
mod noise;
mod template;
#[cfg(test)]
mod tests;

use std::ops::Range;

use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, Sample};

use identity::Node;
use model::Moment;
pub(crate) use noise::{below, mix2};
use template::{Job, Row, Subject};

/// Number of machines per control plane.
const NODES_PER_PLANE: usize = 200;
/// Minimum and maximum number of API resources of a control plane. The number grows with the fleet.
const RESOURCES_MIN: usize = 2;
const RESOURCES_MAX: usize = 40;
/// Lifetime of a process (three days), and maximum age of a pod without churn (a week), in rounds
/// of 30 s.
const PROCESS_ROUNDS: i64 = 8_640;
const POD_AGE_ROUNDS_MAX: i64 = 20_160;
/// Minimum lifetime of a pod at any churn rate.
const POD_ROUNDS_MIN: i64 = 4;
/// Maximum number of active series.
pub(crate) const ACTIVE_SERIES_MAX: usize = 1 << 30;
/// Maximum number of series per machine.
pub(crate) const SERIES_PER_NODE_MAX: usize = 100_000;

/// Parameters of a fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetOptions {
    /// Series that are active at any time, at most 2^30. The last machine may be incomplete.
    pub active_series: usize,
    /// Series per machine, including the series of its pods, at most 100,000.
    pub series_per_node: usize,
    /// Milliseconds between two scrapes of a target.
    pub interval_ms: i64,
    /// Time of round 0 in milliseconds. The scrapes of targets are spread over the interval after
    /// it.
    pub start_ms: i64,
    /// Fraction of the pods that is replaced per hour.
    pub churn_per_hour: f64,
    /// Seed of labels, rates and noise.
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
    /// The pod of the place that it belongs to. 0 if it belongs to no pod.
    pub generation: u32,
}

/// A simulated fleet. See the module documentation.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    plane: Vec<Row>,
    n_planes: u32,
    node: Vec<Row>,
    /// Lifetime of a pod in rounds.
    pod_rounds: i64,
}

/// The row and machine of a place.
struct Place<'a> {
    row: &'a Row,
    /// The machine or control plane.
    node: Node,
}

/// The current process or pod of a series, and the rounds since it started.
struct Life {
    generation: u32,
    elapsed: u64,
}

impl Fleet {
    /// Creates a fleet.
    ///
    /// # Panics
    /// If the number of series, the series per machine or the interval is 0 or beyond its bound.
    pub fn new(options: FleetOptions) -> Self {
        assert!(
            (1..=ACTIVE_SERIES_MAX).contains(&options.active_series),
            "active series are out of bounds"
        );
        assert!(
            (1..=SERIES_PER_NODE_MAX).contains(&options.series_per_node),
            "series per node are out of bounds"
        );
        assert!(options.interval_ms > 0, "the interval must be more than 0");
        let n_nodes = options.active_series.div_ceil(options.series_per_node);
        let n_planes = u32::try_from(n_nodes.div_ceil(NODES_PER_PLANE))
            .expect("a fleet has fewer control planes than series");
        let n_resources =
            (n_nodes * RESOURCES_MAX / NODES_PER_PLANE * 2).clamp(RESOURCES_MIN, RESOURCES_MAX);
        Self {
            options,
            plane: exporters::control_plane(n_resources),
            n_planes,
            node: exporters::machine(options.series_per_node),
            pod_rounds: pod_rounds(&options),
        }
    }

    /// Returns the options it was created with.
    #[must_use]
    pub fn options(&self) -> &FleetOptions {
        &self.options
    }

    /// Returns the number of series that are active at any time.
    #[must_use]
    pub fn n_places(&self) -> u32 {
        u32::try_from(self.options.active_series).expect("checked by `new`")
    }

    /// Returns the series that is active at a place in a round.
    #[must_use]
    pub fn series_at(&self, place: u32, round: i64) -> SeriesId {
        let generation = self.life(&self.place(place), round).generation;
        SeriesId { place, generation }
    }

    /// Returns the timestamp of the sample at `place` in `round`.
    #[must_use]
    pub fn timestamp_ms(&self, place: u32, round: i64) -> i64 {
        let Place { row, node } = self.place(place);
        // One kube-state-metrics exports the series of all machines.
        let node_seed = if row.job == Job::KubeStateMetrics {
            self.options.seed
        } else {
            node.seed
        };
        let interval = self.options.interval_ms.unsigned_abs();
        let phase_ms = below(mix2(node_seed, row.job as u64), interval);
        self.options.start_ms + round * self.options.interval_ms + phase_ms.cast_signed()
    }

    /// Returns the labels of a series.
    #[must_use]
    pub fn labels(&self, series: SeriesId) -> Labels {
        let Place { row, node } = self.place(series.place);
        labels::labels(row, node, series.generation)
    }

    /// Returns the value of a series in a round: the staleness marker in the round in which it
    /// ends, `None` before its first round and after its end.
    #[must_use]
    pub fn value(&self, series: SeriesId, round: i64) -> Option<f64> {
        if round < 0 {
            return None;
        }
        let place = self.place(series.place);
        let life = self.life(&place, round);
        if life.generation == series.generation {
            return Some(self.value_of(&place, series, round, life.elapsed));
        }
        let ends_now = life.generation == series.generation + 1 && life.elapsed == 0 && round > 0;
        ends_now.then_some(f64::from_bits(STALE_NAN_BITS))
    }

    /// Calls `each` with the samples that a round scrapes at some places: one sample per active
    /// series, preceded by the staleness marker of the series that it replaces.
    pub fn scrape(&self, places: Range<u32>, round: i64, mut each: impl FnMut(SeriesId, Sample)) {
        for place in places {
            let timestamp_ms = self.timestamp_ms(place, round);
            let series = self.series_at(place, round);
            let before = series
                .generation
                .checked_sub(1)
                .map(|generation| SeriesId { place, generation });
            for series in before.into_iter().chain([series]) {
                if let Some(value) = self.value(series, round) {
                    each(
                        series,
                        Sample {
                            timestamp_ms,
                            value,
                        },
                    );
                }
            }
        }
    }

    /// Returns the places of each control plane and machine.
    pub fn machines(&self) -> impl Iterator<Item = Range<u32>> {
        let ends = (1..=self.n_planes).map(|n| n * self.plane.len() as u32);
        let planes_end = self.planes_end();
        let node = self.node.len() as u32;
        let ends =
            ends.chain((1..).map(move |n: u32| planes_end.saturating_add(n.saturating_mul(node))));
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
        let (rows, index, kind) = match place.checked_sub(self.planes_end()) {
            Some(node_index) => (&self.node, node_index, 1),
            None => (&self.plane, place, 0),
        };
        let n_rows = rows.len() as u32;
        let row = index % n_rows;
        let index = index / n_rows;
        let seed = mix2(self.options.seed, u64::from(index) << 1 | kind);
        Place {
            row: &rows[row as usize],
            node: Node { index, seed },
        }
    }

    fn life(&self, place: &Place<'_>, round: i64) -> Life {
        let (key, lifetime, age_max) = match place.row.subject.slot() {
            Some(slot) => (
                u64::from(slot) << 8,
                self.pod_rounds,
                self.pod_rounds.min(POD_AGE_ROUNDS_MAX),
            ),
            None => (
                place.row.job as u64 | 1 << 32,
                PROCESS_ROUNDS,
                PROCESS_ROUNDS,
            ),
        };
        let age = below(mix2(place.node.seed, key), age_max.unsigned_abs());
        let since = round.max(0).unsigned_abs() + age;
        let life = since / lifetime.unsigned_abs();
        let elapsed = since % lifetime.unsigned_abs();
        // A restarted process keeps its series.
        let generation = if place.row.subject == Subject::Machine {
            0
        } else {
            u32::try_from(life).unwrap_or(u32::MAX)
        };
        Life {
            generation,
            elapsed,
        }
    }

    fn value_of(&self, place: &Place<'_>, series: SeriesId, round: i64, elapsed: u64) -> f64 {
        let key = u64::from(place.row.key) << 32 | u64::from(series.generation);
        let timestamp_ms = if place.row.model.depends_on_time() {
            self.timestamp_ms(series.place, round)
        } else {
            0
        };
        let moment = Moment {
            seed: mix2(place.node.seed, key),
            elapsed,
            now_ms: timestamp_ms.unsigned_abs(),
            interval_ms: self.options.interval_ms.unsigned_abs(),
        };
        place.row.model.value(&moment)
    }
}

fn pod_rounds(options: &FleetOptions) -> i64 {
    if options.churn_per_hour <= 0.0 {
        return i64::MAX >> 1;
    }
    let rounds = 3_600_000.0 / options.churn_per_hour / options.interval_ms as f64;
    // Casting a float saturates.
    (rounds.round() as i64).clamp(POD_ROUNDS_MIN, i64::MAX >> 1)
}
