//! Writes a [`DecodedBatch`] for protocols whose label sets do not lie in the body as remote write 1.0 has them.
//!
//! Label sets and exemplars are encoded into a buffer that takes the place of the message, labels sorted by name: what
//! comes by another protocol has the same key in the route cache as what Prometheus sends.
//!
//! Bounds: [`Limits`], and the buffer takes no more than [`RESOLVED_FACTOR`] times what a message may; it is reserved from
//! the bytes in flight before it grows.

use std::sync::Arc;

use varve_tsdb::Sample;
use varve_tsdb::histogram::Histogram;

use super::{DecodedBatch, FamilyEntry, HistogramEntry, RouteHasher, RouteKey, Span};
use crate::admission::memory::Permit;
use crate::error::WriteError;
use crate::limits::{Limits, RESOLVED_FACTOR};

/// A batch being written, series by series.
#[derive(Debug)]
pub(crate) struct BatchBuilder<'a, 'p> {
    batch: &'a mut DecodedBatch,
    text: &'a mut Vec<u8>,
    permit: &'a mut Permit<'p>,
    hasher: &'a RouteHasher,
    limits: &'a Limits,
    /// Bytes of `text` that are reserved.
    reserved: usize,
    /// Labels of the series at hand.
    labels: Span,
    key: Option<RouteKey>,
}

impl<'a, 'p> BatchBuilder<'a, 'p> {
    /// Begins a batch in `batch` and `text`, whatever they held.
    pub(crate) fn new(
        batch: &'a mut DecodedBatch,
        text: &'a mut Vec<u8>,
        permit: &'a mut Permit<'p>,
        hasher: &'a RouteHasher,
        limits: &'a Limits,
    ) -> Self {
        batch.clear();
        text.clear();
        Self { batch, text, permit, hasher, limits, reserved: 0, labels: Span::default(), key: None }
    }

    /// Begins a series; `labels` are sorted by name.
    pub(crate) fn series<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<(), WriteError> {
        let start = self.text.len();
        self.put_labels(labels)?;
        self.labels = Span::new(start, self.text.len());
        self.key = Some(self.hasher.hash(&self.text[start..]));
        Ok(())
    }

    /// Adds a sample to the series at hand; a start of 0 is unknown.
    pub(crate) fn sample(&mut self, timestamp_ms: i64, value: f64, start_ms: i64) -> Result<(), WriteError> {
        self.batch.push_sample(Sample { timestamp_ms, value }, start_ms);
        self.limits.check_samples(self.batch.n_all_samples())
    }

    /// Adds a histogram that has been checked to the series at hand.
    pub(crate) fn histogram(
        &mut self,
        timestamp_ms: i64,
        histogram: Histogram,
        start_ms: i64,
    ) -> Result<(), WriteError> {
        let histogram = Arc::new(histogram);
        self.batch.histograms.push(HistogramEntry::Made { timestamp_ms, start_ms, histogram });
        self.limits.check_samples(self.batch.n_all_samples())
    }

    /// Adds an exemplar to the series at hand.
    pub(crate) fn exemplar<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), WriteError> {
        let start = self.text.len();
        self.put_labels(labels)?;
        self.reserve(EXEMPLAR_SIZE_MAX)?;
        self.text.push(EXEMPLAR_VALUE);
        self.text.extend_from_slice(&value.to_bits().to_le_bytes());
        self.text.push(EXEMPLAR_TIMESTAMP);
        put_varint(self.text, timestamp_ms.cast_unsigned());
        self.batch.push_exemplar(Span::new(start, self.text.len()));
        self.limits.check_exemplars(self.batch.exemplars.len())
    }

    /// Ends the series at hand.
    pub(crate) fn end_series(&mut self) -> Result<(), WriteError> {
        self.batch.push_series(self.labels, self.key);
        self.limits.check_series(self.batch.series.len())
    }

    /// Adds metadata of a family; `kind` is a number of remote write.
    pub(crate) fn family(&mut self, name: &str, kind: i32, help: &str, unit: &str) -> Result<(), WriteError> {
        self.reserve(name.len() + help.len() + unit.len())?;
        let mut put = |text: &str| {
            let start = self.text.len();
            self.text.extend_from_slice(text.as_bytes());
            Span::new(start, self.text.len())
        };
        let family = FamilyEntry { name: put(name), help: put(help), unit: put(unit), kind };
        self.batch.families.push(family);
        self.limits.check_families(self.batch.families.len())
    }

    fn put_labels<'l>(&mut self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> Result<(), WriteError> {
        for (name, value) in labels {
            self.reserve(name.len() + value.len() + LABEL_SIZE_MAX)?;
            let size = 2 + varint_size(name.len()) + name.len() + varint_size(value.len()) + value.len();
            self.text.push(LABEL);
            put_varint(self.text, size as u64);
            for (key, text) in [(LABEL_NAME, name), (LABEL_VALUE, value)] {
                self.text.push(key);
                put_varint(self.text, text.len() as u64);
                self.text.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }

    /// Makes room for `size` bytes.
    fn reserve(&mut self, size: usize) -> Result<(), WriteError> {
        let wanted = self.text.len() + size;
        if wanted <= self.reserved {
            return Ok(());
        }
        self.limits.check_resolved(wanted as u64)?;
        let step = wanted - self.reserved + RESERVE_STEP;
        self.permit.grow(step)?;
        self.reserved += step;
        Ok(())
    }
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn varint_size(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

const LABEL: u8 = 1 << 3 | 2;
const LABEL_NAME: u8 = 1 << 3 | 2;
const LABEL_VALUE: u8 = 2 << 3 | 2;
const EXEMPLAR_VALUE: u8 = 2 << 3 | 1;
const EXEMPLAR_TIMESTAMP: u8 = 3 << 3;
/// Bytes of a label besides its texts, at most.
const LABEL_SIZE_MAX: usize = 3 + 3 * 10;
/// Bytes of an exemplar besides its labels, at most.
const EXEMPLAR_SIZE_MAX: usize = 2 + 8 + 10;
const RESERVE_STEP: usize = 256 << 10;
const _: () = assert!(RESOLVED_FACTOR > 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::memory::Admission;
    use crate::remote_write::message;
    use crate::remote_write::v1;
    use prost::Message;

    #[test]
    fn series_are_encoded_as_prometheus_encodes_them() {
        let long = "x".repeat(20_000);
        let labels = [("__name__", "up"), ("é", long.as_str())];
        let (mut batch, mut text) = (DecodedBatch::default(), vec![1, 2]);
        let (admission, hasher, limits) = (Admission::new(1 << 20), RouteHasher::new(), Limits::default());
        let mut permit = admission.admit(0).unwrap();
        let mut composer = BatchBuilder::new(&mut batch, &mut text, &mut permit, &hasher, &limits);
        composer.family("up", 2, "Whether.", "").unwrap();
        composer.series(labels).unwrap();
        composer.sample(-5, 1.5, 0).unwrap();
        composer.exemplar([("trace_id", "t")], 2.5, -7).unwrap();
        composer.end_series().unwrap();
        let encoded = message::series(&labels, &[]).encode_to_vec();
        assert!(batch.series[0].labels.of(&text) == encoded);
        assert_eq!(batch.series[0].key, Some(hasher.hash(&encoded)));
        let exemplar = message::Exemplar::decode(batch.exemplars[0].fields.of(&text)).unwrap();
        assert_eq!((exemplar.labels.len(), exemplar.value, exemplar.timestamp), (1, 2.5, -7));
        v1::check_labels(&text, batch.series[0].labels).unwrap();
        assert_eq!(
            (batch.families[0].name.of(&text), batch.families[0].help.of(&text)),
            (&b"up"[..], &b"Whether."[..])
        );
        assert!(admission.in_flight() >= text.len() as u64);
    }

    #[test]
    fn the_buffer_is_bounded_and_reserved_before_it_grows() {
        let value = "x".repeat(1000);
        let grow = |in_flight: usize, limits: &Limits| {
            let (admission, hasher) = (Admission::new(in_flight), RouteHasher::new());
            let (_other, mut permit) = (admission.admit(1).unwrap(), admission.admit(1).unwrap());
            let (mut batch, mut text) = (DecodedBatch::default(), Vec::new());
            let mut composer = BatchBuilder::new(&mut batch, &mut text, &mut permit, &hasher, limits);
            (0..1000).try_for_each(|_| composer.series([("a", value.as_str())])).unwrap_err()
        };
        assert!(matches!(grow(300 << 10, &Limits::default()), WriteError::Busy { .. }));
        let limits = Limits { decompressed_size_max: 1000, ..Limits::default() };
        assert!(matches!(grow(1 << 30, &limits), WriteError::TooLarge { limit: 8000, .. }));
    }
}
