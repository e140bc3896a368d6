//! Series under construction: what changed since the last scrape goes into write requests.
//!
//! Of samples that repeat the value of their series, every second one is left out: most series of a
//! cluster are constant. Lookback (5 minutes) sees no difference, and `rate` over 2 minutes still
//! has two samples.
//!
//! Bounds: one slot per series; requests of at most [`SAMPLES_PER_REQUEST`] samples.

use anyhow::Result;
use varve_model::{Labels, Sample};

use crate::message::{EncodedLabels, Version, WriteRequest};

/// Scrapes after which an unchanged value is written again.
const REPEATED_ROUNDS: i64 = 2;
const SAMPLES_PER_REQUEST: usize = 5_000;
/// Number of request streams. All samples of a series are in one stream, in the order of time.
pub(super) const STREAMS: usize = 2;
/// Prometheus' staleness marker.
const STALE_NAN: f64 = f64::from_bits(varve_model::staleness::STALE_NAN_BITS);

/// A place for a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId(u32);

#[derive(Debug)]
struct Slot {
    labels: Option<EncodedLabels>,
    /// The same series of a second exporter.
    twin: Option<EncodedLabels>,
    value: f64,
    written: f64,
    written_round: i64,
    /// It has samples after its last staleness marker.
    is_written: bool,
    is_hidden: bool,
}

/// All series, and the samples of the current scrape.
pub(super) struct SeriesSet {
    slots: Vec<Slot>,
    unused: Vec<SlotId>,
    requests: [WriteRequest; STREAMS],
    /// Full requests, by stream.
    pub(super) bodies: Vec<Body>,
    round: i64,
    timestamp_ms: i64,
    pub(super) n_series: u64,
    pub(super) n_samples: u64,
}

/// An encoded request.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) stream: usize,
    pub(super) bytes: Vec<u8>,
}

impl SeriesSet {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            unused: Vec::new(),
            requests: Default::default(),
            bodies: Vec::new(),
            round: 0,
            timestamp_ms: 0,
            n_series: 0,
            n_samples: 0,
        }
    }

    /// Begins a scrape.
    pub(super) fn begin(&mut self, round: i64, timestamp_ms: i64) {
        self.round = round;
        self.timestamp_ms = timestamp_ms;
    }

    /// Creates a series with the value 0.
    pub(super) fn create(&mut self, labels: &Labels) -> SlotId {
        self.n_series += 1;
        let slot = Slot {
            labels: Some(EncodedLabels::new(labels, Version::V1)),
            twin: None,
            value: 0.0,
            written: 0.0,
            written_round: i64::MIN / 2,
            is_written: false,
            is_hidden: false,
        };
        if let Some(id) = self.unused.pop() {
            self.slots[id.0 as usize] = slot;
            return id;
        }
        let id = SlotId(u32::try_from(self.slots.len()).expect("fewer than 2^32 series"));
        self.slots.push(slot);
        id
    }

    /// Ends the series of a slot and begins another one with its value.
    pub(super) fn relabel(&mut self, id: SlotId, labels: &Labels) -> Result<()> {
        self.end(id)?;
        self.n_series += 1;
        let slot = &mut self.slots[id.0 as usize];
        slot.labels = Some(EncodedLabels::new(labels, Version::V1));
        Ok(())
    }

    /// Ends a series. Its slot is used again.
    pub(super) fn remove(&mut self, id: SlotId) -> Result<()> {
        self.set_twin(id, None)?;
        self.end(id)?;
        self.slots[id.0 as usize].labels = None;
        self.unused.push(id);
        Ok(())
    }

    pub(super) fn set(&mut self, id: SlotId, value: f64) {
        self.slots[id.0 as usize].value = value;
    }

    pub(super) fn add(&mut self, id: SlotId, increase: f64) {
        self.slots[id.0 as usize].value += increase;
    }

    /// Stops writing a series, as a failed scrape does, or continues.
    pub(super) fn set_hidden(&mut self, id: SlotId, is_hidden: bool) -> Result<()> {
        let slot = &mut self.slots[id.0 as usize];
        if slot.is_hidden == is_hidden {
            return Ok(());
        }
        slot.is_hidden = is_hidden;
        self.end(id)
    }

    /// Writes a second series with the same values, or ends it.
    pub(super) fn set_twin(&mut self, id: SlotId, labels: Option<&Labels>) -> Result<()> {
        let slot = &mut self.slots[id.0 as usize];
        let old = slot.twin.take();
        slot.twin = labels.map(|labels| EncodedLabels::new(labels, Version::V1));
        // The twin begins with the next sample.
        slot.written_round = i64::MIN / 2;
        let is_written = slot.is_written;
        if let Some(old) = old
            && is_written
        {
            self.push(id, &old, STALE_NAN)?;
        }
        Ok(())
    }

    /// Writes what changed, and ends the scrape.
    pub(super) fn finish(&mut self) -> Result<()> {
        for idx in 0..self.slots.len() {
            let slot = &mut self.slots[idx];
            let is_due = slot.value.to_bits() != slot.written.to_bits()
                || self.round - slot.written_round >= REPEATED_ROUNDS
                || !slot.is_written;
            if slot.labels.is_none() || slot.is_hidden || !is_due {
                continue;
            }
            slot.written = slot.value;
            slot.written_round = self.round;
            slot.is_written = true;
            let value = slot.value;
            let labels = slot.labels.take().expect("it has labels");
            let twin = slot.twin.take();
            let id = SlotId(idx as u32);
            self.push(id, &labels, value)?;
            if let Some(twin) = &twin {
                self.push(id, twin, value)?;
            }
            let slot = &mut self.slots[idx];
            slot.labels = Some(labels);
            slot.twin = twin;
        }
        for stream in 0..STREAMS {
            self.take_body(stream)?;
        }
        Ok(())
    }

    fn end(&mut self, id: SlotId) -> Result<()> {
        let slot = &mut self.slots[id.0 as usize];
        if !slot.is_written {
            return Ok(());
        }
        slot.is_written = false;
        let labels = slot.labels.take().expect("a written series has labels");
        let twin = slot.twin.take();
        self.push(id, &labels, STALE_NAN)?;
        if let Some(twin) = &twin {
            self.push(id, twin, STALE_NAN)?;
        }
        let slot = &mut self.slots[id.0 as usize];
        slot.labels = Some(labels);
        slot.twin = twin;
        Ok(())
    }

    fn push(&mut self, id: SlotId, labels: &EncodedLabels, value: f64) -> Result<()> {
        let stream = id.0 as usize % STREAMS;
        let sample = Sample {
            timestamp_ms: self.timestamp_ms,
            value,
        };
        self.requests[stream].push(labels, sample);
        self.n_samples += 1;
        if self.requests[stream].n_samples() >= SAMPLES_PER_REQUEST {
            self.take_body(stream)?;
        }
        Ok(())
    }

    fn take_body(&mut self, stream: usize) -> Result<()> {
        let request = &mut self.requests[stream];
        if request.n_samples() > 0 {
            let bytes = request.take_body()?;
            self.bodies.push(Body { stream, bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(name: &str) -> Labels {
        Labels::from_pairs([("__name__", name)]).unwrap()
    }

    /// Returns the number of samples of each scrape of a series with these values.
    fn written(set: &mut SeriesSet, id: SlotId, values: &[f64]) -> Vec<u64> {
        let mut counts = Vec::new();
        for value in values {
            let before = set.n_samples;
            set.begin(set.round + 1, 0);
            set.set(id, *value);
            set.finish().unwrap();
            counts.push(set.n_samples - before);
        }
        counts
    }

    #[test]
    fn repeated_values_are_left_out() {
        let mut set = SeriesSet::new();
        let id = set.create(&labels("a"));
        let counts = written(&mut set, id, &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(counts, [1, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn a_series_ends_with_one_staleness_marker() {
        let mut set = SeriesSet::new();
        let id = set.create(&labels("a"));
        set.set_hidden(id, true).unwrap();
        assert_eq!(set.n_samples, 0, "no marker before the first sample");
        set.set_hidden(id, false).unwrap();
        written(&mut set, id, &[1.0]);
        set.set_hidden(id, true).unwrap();
        set.set_hidden(id, true).unwrap();
        assert_eq!(set.n_samples, 2);
        assert_eq!(written(&mut set, id, &[3.0]), [0]);
        set.remove(id).unwrap();
        assert_eq!(set.n_samples, 2);
        let next = set.create(&labels("b"));
        assert_eq!(next, id, "the slot is used again");
    }

    #[test]
    fn a_twin_has_the_same_samples_until_it_ends() {
        let mut set = SeriesSet::new();
        let id = set.create(&labels("a"));
        written(&mut set, id, &[1.0]);
        set.set_twin(id, Some(&labels("b"))).unwrap();
        assert_eq!(written(&mut set, id, &[1.0, 2.0]), [2, 2]);
        let before = set.n_samples;
        set.set_twin(id, None).unwrap();
        assert_eq!(set.n_samples - before, 1);

        // Both end while the series is hidden, and begin again.
        set.set_twin(id, Some(&labels("b"))).unwrap();
        written(&mut set, id, &[3.0]);
        let before = set.n_samples;
        set.set_hidden(id, true).unwrap();
        assert_eq!(set.n_samples - before, 2);
        set.set_hidden(id, false).unwrap();
        assert_eq!(written(&mut set, id, &[3.0]), [2]);
    }
}
