//! Builds a [`DecodedBatch`] for protocols other than remote write.
//!
//! Label sets and exemplars are encoded as in remote write 1.0, with labels sorted by name, into a
//! buffer that replaces the message. So a series has the same key in the route cache for every
//! protocol.
//!
//! Bounds: [`Limits`], and the buffer takes at most
//! [`RESOLVED_FACTOR`](crate::limits::RESOLVED_FACTOR) times the maximum of a message. The memory
//! of the buffer is reserved before it grows.

use std::sync::Arc;

use prost::encoding::{encode_varint, encoded_len_varint};
use varve_model::Sample;
use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;
use varve_protobuf::Span;

use crate::admission::memory::Reservation;
use crate::batch::{DecodedBatch, FamilyEntry, HistogramEntry, RouteHasher, RouteKey};
use crate::error::WriteError;
use crate::limits::Limits;
use crate::sources::remote_write::v1;

/// A batch being built, series by series.
#[derive(Debug)]
pub(crate) struct BatchBuilder<'a, 'p> {
    batch: &'a mut DecodedBatch,
    encoded: &'a mut Vec<u8>,
    memory: &'a mut Reservation<'p>,
    hasher: &'a RouteHasher,
    limits: &'a Limits,
    /// Bytes reserved for `encoded`.
    reserved: usize,
    /// Labels of the current series.
    labels: Span,
    key: Option<RouteKey>,
}

impl<'a, 'p> BatchBuilder<'a, 'p> {
    /// Clears `batch` and `encoded` and starts a batch.
    pub(crate) fn new(
        batch: &'a mut DecodedBatch,
        encoded: &'a mut Vec<u8>,
        memory: &'a mut Reservation<'p>,
        hasher: &'a RouteHasher,
        limits: &'a Limits,
    ) -> Self {
        batch.clear();
        encoded.clear();
        Self {
            batch,
            encoded,
            memory,
            hasher,
            limits,
            reserved: 0,
            labels: Span::default(),
            key: None,
        }
    }

    /// Returns the number of floats and of histograms so far.
    pub(crate) fn n_samples(&self) -> (usize, usize) {
        (self.batch.samples.len(), self.batch.histograms.len())
    }

    /// Starts a series and returns its key. `labels` must be sorted by name.
    pub(crate) fn series<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<RouteKey, WriteError> {
        let start = self.encoded.len();
        self.put_labels(labels)?;
        self.labels = Span::new(start, self.encoded.len());
        let key = self.hasher.hash(&self.encoded[start..]);
        self.key = Some(key);
        Ok(key)
    }

    /// Adds a sample to the current series. `start_ms` is 0 if unknown.
    pub(crate) fn sample(
        &mut self,
        timestamp_ms: i64,
        value: f64,
        start_ms: i64,
    ) -> Result<(), WriteError> {
        self.batch.push_sample(
            Sample {
                timestamp_ms,
                value,
            },
            start_ms,
        );
        self.limits.check_samples(self.batch.n_all_samples())
    }

    /// Adds a checked histogram to the current series.
    pub(crate) fn histogram(
        &mut self,
        timestamp_ms: i64,
        histogram: Histogram,
        start_ms: i64,
    ) -> Result<(), WriteError> {
        let histogram = Arc::new(histogram);
        self.batch.histograms.push(HistogramEntry::Decoded {
            timestamp_ms,
            start_ms,
            histogram,
        });
        self.limits.check_samples(self.batch.n_all_samples())
    }

    /// Adds an exemplar to the current series.
    pub(crate) fn exemplar<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), WriteError> {
        let start = self.encoded.len();
        self.put_labels(labels)?;
        self.reserve(EXEMPLAR_SIZE_MAX)?;
        self.encoded.push(v1::EXEMPLAR_VALUE as u8);
        self.encoded
            .extend_from_slice(&value.to_bits().to_le_bytes());
        self.encoded.push(v1::EXEMPLAR_TIMESTAMP as u8);
        encode_varint(timestamp_ms.cast_unsigned(), self.encoded);
        self.batch
            .push_exemplar(Span::new(start, self.encoded.len()));
        self.limits.check_exemplars(self.batch.exemplars.len())
    }

    /// Ends the current series.
    pub(crate) fn end_series(&mut self) -> Result<(), WriteError> {
        self.batch.push_series(self.labels, self.key);
        self.limits.check_series(self.batch.series.len())
    }

    /// Adds the metadata of a family.
    pub(crate) fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        unit: &str,
    ) -> Result<(), WriteError> {
        self.reserve(name.len() + help.len() + unit.len())?;
        let mut put = |string: &str| {
            let start = self.encoded.len();
            self.encoded.extend_from_slice(string.as_bytes());
            Span::new(start, self.encoded.len())
        };
        let family = FamilyEntry {
            name: put(name),
            help: put(help),
            unit: put(unit),
            kind,
        };
        self.batch.families.push(family);
        self.limits.check_families(self.batch.families.len())
    }

    fn put_labels<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<(), WriteError> {
        for (name, value) in labels {
            self.reserve(name.len() + value.len() + LABEL_SIZE_MAX)?;
            let size_of = |string: &str| 1 + encoded_len_varint(string.len() as u64) + string.len();
            self.encoded.push(v1::LABEL_KEY);
            encode_varint((size_of(name) + size_of(value)) as u64, self.encoded);
            for (key, string) in [(v1::LABEL_NAME_KEY, name), (v1::LABEL_VALUE_KEY, value)] {
                self.encoded.push(key);
                encode_varint(string.len() as u64, self.encoded);
                self.encoded.extend_from_slice(string.as_bytes());
            }
        }
        Ok(())
    }

    /// Reserves `size` bytes outside of the buffer.
    pub(crate) fn grow(&mut self, size: usize) -> Result<(), WriteError> {
        self.memory.grow(size)
    }

    /// Reserves memory for `size` more bytes of the buffer.
    fn reserve(&mut self, size: usize) -> Result<(), WriteError> {
        let wanted = self.encoded.len() + size;
        if wanted <= self.reserved {
            return Ok(());
        }
        self.limits.check_resolved(wanted as u64)?;
        let step = wanted - self.reserved + RESERVE_STEP;
        self.memory.grow(step)?;
        self.reserved += step;
        Ok(())
    }
}

/// Maximum size of a label without its strings.
const LABEL_SIZE_MAX: usize = 3 + 3 * 10;
/// Maximum size of an exemplar without its labels.
const EXEMPLAR_SIZE_MAX: usize = 2 + 8 + 10;
const RESERVE_STEP: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::memory::Memory;
    use crate::sources::remote_write::message;
    use prost::Message;

    #[test]
    fn series_are_encoded_as_prometheus_encodes_them() {
        let long = "x".repeat(20_000);
        let labels = [("__name__", "up"), ("é", long.as_str())];
        let mut batch = DecodedBatch::default();
        let mut encoded = vec![1, 2];
        let memory = Memory::new(1 << 20);
        let hasher = RouteHasher::new();
        let limits = Limits::for_tests();
        let mut reservation = memory.reserve(0).unwrap();
        let mut builder =
            BatchBuilder::new(&mut batch, &mut encoded, &mut reservation, &hasher, &limits);
        builder
            .family("up", MetricType::Gauge, "Whether.", "")
            .unwrap();
        builder.series(labels).unwrap();
        builder.sample(-5, 1.5, 0).unwrap();
        builder.exemplar([("trace_id", "t")], 2.5, -7).unwrap();
        builder.end_series().unwrap();
        let expected = message::series(&labels, &[]).encode_to_vec();
        assert!(batch.series[0].labels.slice(&encoded) == expected);
        assert_eq!(batch.series[0].key, Some(hasher.hash(&expected)));
        let exemplar =
            message::Exemplar::decode(batch.exemplars[0].fields.slice(&encoded)).unwrap();
        assert_eq!(
            (exemplar.labels.len(), exemplar.value, exemplar.timestamp_ms),
            (1, 2.5, -7)
        );
        v1::check_labels(&encoded, batch.series[0].labels).unwrap();
        assert_eq!(
            (
                batch.families[0].name.slice(&encoded),
                batch.families[0].help.slice(&encoded)
            ),
            (&b"up"[..], &b"Whether."[..])
        );
        assert!(memory.in_flight() >= encoded.len() as u64);
    }

    #[test]
    fn the_buffer_is_bounded_and_reserved_before_it_grows() {
        let value = "x".repeat(1000);
        let grow = |in_flight: usize, limits: &Limits| {
            let memory = Memory::new(in_flight);
            let hasher = RouteHasher::new();
            let _other = memory.reserve(1).unwrap();
            let mut reservation = memory.reserve(1).unwrap();
            let mut batch = DecodedBatch::default();
            let mut encoded = Vec::new();
            let mut builder =
                BatchBuilder::new(&mut batch, &mut encoded, &mut reservation, &hasher, limits);
            (0..1000)
                .try_for_each(|_| builder.series([("a", value.as_str())]).map(drop))
                .unwrap_err()
        };
        assert!(matches!(
            grow(300 << 10, &Limits::for_tests()),
            WriteError::Busy { .. }
        ));
        let limits = Limits {
            decompressed_size_max: 1000,
            ..Limits::for_tests()
        };
        assert!(matches!(
            grow(1 << 30, &limits),
            WriteError::TooLarge { limit: 8000, .. }
        ));
    }
}
