//! `io.prometheus.write.v2.Request` of remote write 2.0 (`prompb/io/prometheus/write/v2/types.proto`), decoded in place.
//!
//! Its strings stand once in a table of symbols; label sets are numbers of symbols. Each symbol is hashed once, and the
//! key of a label set is the hash of its symbols' hashes: nothing is put together for a series that is known. What
//! version 1.0 says of proto3's rules and of histograms and exemplars holds here too.
//!
//! Bounds: a label set of a few bytes may name symbols of many. What all label sets of a request would take as text is
//! summed up and is at most [`RESOLVED_FACTOR`](crate::limits::RESOLVED_FACTOR) times what a message of version 1.0 could hold.

use varve_tsdb::Sample;
use varve_tsdb::labels::METRIC_NAME;

use super::histogram;
use super::wire::{Key, Reader, fixed64_key, len_key, varint_key};
use crate::batch::{DecodedBatch, FamilyEntry, HistogramEntry, RouteHasher, Span, Symbol, Version};
use crate::error::{Malformed, WriteError};
use crate::limits::Limits;

/// See [`decode_v2`](super::decode_v2).
pub(crate) fn decode(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    limits.check_decompressed(message.len() as u64)?;
    batch.clear();
    batch.version = Version::V2;
    decode_symbols(message, hasher, limits, batch)?;
    let mut decoder = Decoder { message, hasher, limits, batch, hashes: Vec::new(), resolved_size: 0 };
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key()? {
        match key {
            TIMESERIES => decoder.series(reader.message()?)?,
            SYMBOLS => drop(reader.message()?),
            _ => reader.skip_unknown(key, REQUEST)?,
        }
    }
    Ok(())
}

/// Finds the symbols first: a message may have its fields in any order.
fn decode_symbols(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key()? {
        match key {
            SYMBOLS => {
                let symbol = reader.message()?;
                batch.symbols.push(Symbol { text: symbol.span(), hash: hasher.hash(symbol.rest()) });
                limits.check_symbols(batch.symbols.len())?;
            }
            TIMESERIES => drop(reader.message()?),
            _ => reader.skip_unknown(key, REQUEST)?,
        }
    }
    Ok(())
}

struct Decoder<'a> {
    message: &'a [u8],
    hasher: &'a RouteHasher,
    limits: &'a Limits,
    batch: &'a mut DecodedBatch,
    /// Those of the symbols of the label set at hand.
    hashes: Vec<u8>,
    /// Bytes of all label sets as text, up to now.
    resolved_size: u64,
}

/// What of a series is known after some of its fields.
#[derive(Debug, Default)]
struct Fields {
    labels: Span,
    /// Fields of references; where they are several, or one that is not packed, the series takes the slow path.
    n_labels: usize,
    is_packed: bool,
    n_refs: usize,
    /// Symbol of the metric name.
    metric_name: Option<u32>,
    /// A name whose value is still to come.
    name: Option<u32>,
    metadata: MetadataFields,
}

#[derive(Debug, Default, Clone, Copy)]
struct MetadataFields {
    kind: i32,
    help: u32,
    unit: u32,
}

impl Decoder<'_> {
    fn series(&mut self, mut reader: Reader<'_>) -> Result<(), WriteError> {
        let whole = reader.span();
        let mut fields = Fields { is_packed: true, ..Fields::default() };
        self.hashes.clear();
        loop {
            let start = reader.at();
            let Some(key) = reader.key()? else { break };
            match key {
                LABELS_REFS => {
                    self.refs(reader.message()?, &mut fields)?;
                    (fields.labels, fields.n_labels) = (Span::new(start, reader.at()), fields.n_labels + 1);
                }
                LABELS_REF => {
                    let number = reader.varint()? as u32;
                    self.series_ref(number, &mut fields)?;
                    fields.is_packed = false;
                }
                _ => self.field(key, &mut reader, &mut fields)?,
            }
        }
        check_even(fields.n_refs)?;
        let is_contiguous = fields.is_packed && fields.n_labels <= 1;
        let labels = if is_contiguous { fields.labels } else { whole };
        self.batch.push_series(labels, is_contiguous.then(|| self.hasher.hash(&self.hashes)));
        self.limits.check_series(self.batch.series.len())?;
        self.family(&fields)
    }

    fn field(&mut self, key: Key, reader: &mut Reader<'_>, fields: &mut Fields) -> Result<(), WriteError> {
        match key {
            SAMPLES => {
                let (sample, start_ms) = decode_sample(reader.message()?)?;
                self.batch.push_sample(sample, start_ms);
                self.limits.check_samples(self.batch.n_all_samples())?;
            }
            HISTOGRAMS => {
                let histogram = reader.message()?;
                self.batch.histograms.push(HistogramEntry::Sent(histogram.span()));
                self.limits.check_samples(self.batch.n_all_samples())?;
                histogram::SCHEMA_V2.check(histogram)?;
            }
            EXEMPLARS => {
                let exemplar = reader.message()?;
                self.batch.push_exemplar(exemplar.span());
                self.limits.check_exemplars(self.batch.exemplars.len())?;
                self.exemplar(exemplar)?;
            }
            METADATA => decode_metadata(reader.message()?, &mut fields.metadata)?,
            _ => reader.skip_unknown(key, TIME_SERIES)?,
        }
        Ok(())
    }

    /// Takes the references of a packed field.
    fn refs(&mut self, mut packed: Reader<'_>, fields: &mut Fields) -> Result<(), WriteError> {
        while !packed.rest().is_empty() {
            let number = packed.varint()? as u32;
            self.series_ref(number, fields)?;
        }
        Ok(())
    }

    #[inline]
    fn series_ref(&mut self, number: u32, fields: &mut Fields) -> Result<(), WriteError> {
        let symbol = self.symbol(number)?;
        self.hashes.extend_from_slice(&symbol.hash.to_bytes());
        fields.n_refs += 1;
        match fields.name.take() {
            None => fields.name = Some(number),
            // A metric name is long enough to be told from most label names by its size.
            Some(name) if self.batch.symbols[name as usize].text.of(self.message) == METRIC_NAME.as_bytes() => {
                fields.metric_name = Some(number);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns a symbol and counts its size.
    #[inline]
    fn symbol(&mut self, number: u32) -> Result<Symbol, WriteError> {
        let n_symbols = self.batch.symbols.len();
        let symbol = *self.batch.symbols.get(number as usize).ok_or(Malformed::Symbol { number, n_symbols })?;
        self.resolved_size += symbol.text.len() as u64;
        self.limits.check_resolved(self.resolved_size)?;
        Ok(symbol)
    }

    /// Checks an exemplar.
    fn exemplar(&mut self, mut reader: Reader<'_>) -> Result<(), WriteError> {
        let mut n_refs = 0;
        while let Some(key) = reader.key()? {
            match key {
                LABELS_REFS => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        self.symbol(packed.varint()? as u32)?;
                        n_refs += 1;
                    }
                }
                LABELS_REF => {
                    let number = reader.varint()? as u32;
                    self.symbol(number)?;
                    n_refs += 1;
                }
                EXEMPLAR_VALUE => drop(reader.fixed64()?),
                EXEMPLAR_TIMESTAMP => drop(reader.varint()?),
                _ => reader.skip_unknown(key, EXEMPLAR)?,
            }
        }
        Ok(check_even(n_refs)?)
    }

    /// Notes the metadata of a series' family, once for neighbours of one family: a sender tells it with every sample.
    fn family(&mut self, fields: &Fields) -> Result<(), WriteError> {
        let MetadataFields { kind, help, unit } = fields.metadata;
        let text = |number: u32| self.batch.symbols.get(number as usize).map(|symbol| symbol.text);
        let optional = |number: u32| {
            let n_symbols = self.batch.symbols.len();
            // No reference is reference 0, which there need not be where nobody refers.
            text(number).or((number == 0).then(Span::default)).ok_or(Malformed::Symbol { number, n_symbols })
        };
        let (help, unit) = (optional(help)?, optional(unit)?);
        let Some(name) = fields.metric_name.and_then(text) else { return Ok(()) };
        if kind == 0 && help.is_empty() && unit.is_empty() {
            return Ok(());
        }
        let name = family_name(self.message, name, kind);
        let family = FamilyEntry { name, help, unit, kind };
        if self.batch.families.last().is_none_or(|last| !last.is_same(&family, self.message)) {
            self.batch.families.push(family);
            self.limits.check_families(self.batch.families.len())?;
        }
        Ok(())
    }
}

fn check_even(n_refs: usize) -> Result<(), Malformed> {
    if n_refs.is_multiple_of(2) { Ok(()) } else { Err(Malformed::LabelRefs { n_refs }) }
}

/// Cuts off what a classic histogram or a summary adds to the name of its family.
fn family_name(message: &[u8], name: Span, kind: i32) -> Span {
    let suffixes: &[&[u8]] = match kind {
        HISTOGRAM | GAUGE_HISTOGRAM => &[b"_bucket", b"_count", b"_sum", b"_gcount", b"_gsum"],
        SUMMARY => &[b"_count", b"_sum"],
        _ => &[],
    };
    let text = name.of(message);
    let cut = suffixes.iter().find(|suffix| text.ends_with(suffix) && text.len() > suffix.len());
    cut.map_or(name, |suffix| Span::new(name.start as usize, name.end as usize - suffix.len()))
}

#[inline]
fn decode_sample(mut reader: Reader<'_>) -> Result<(Sample, i64), Malformed> {
    let (mut sample, mut start_ms) = (Sample { timestamp_ms: 0, value: 0.0 }, 0);
    while let Some(key) = reader.key()? {
        match key {
            SAMPLE_VALUE => sample.value = f64::from_bits(reader.fixed64()?),
            SAMPLE_TIMESTAMP => sample.timestamp_ms = reader.varint()? as i64,
            SAMPLE_START => start_ms = reader.varint()? as i64,
            _ => reader.skip_unknown(key, SAMPLE)?,
        }
    }
    Ok((sample, start_ms))
}

fn decode_metadata(mut reader: Reader<'_>, to: &mut MetadataFields) -> Result<(), Malformed> {
    while let Some(key) = reader.key()? {
        match key {
            METADATA_TYPE => to.kind = reader.varint()? as i32,
            METADATA_HELP => to.help = reader.varint()? as u32,
            METADATA_UNIT => to.unit = reader.varint()? as u32,
            _ => reader.skip_unknown(key, METADATA_FIELDS)?,
        }
    }
    Ok(())
}

/// Label names and values in the order in which they were sent, of a series or an exemplar that has been decoded.
#[derive(Debug)]
pub(crate) struct LabelPairs<'a> {
    message: &'a [u8],
    symbols: &'a [Symbol],
    reader: Reader<'a>,
    /// The packed field at hand.
    packed: Reader<'a>,
}

impl<'a> LabelPairs<'a> {
    pub(crate) fn new(message: &'a [u8], symbols: &'a [Symbol], labels: Span) -> Self {
        Self { message, symbols, reader: Reader::over(message, labels), packed: Reader::new(b"") }
    }

    /// Checked bytes have no errors; `ok()` only ends the iteration where the caller has not kept its word.
    fn next_text(&mut self) -> Option<&'a [u8]> {
        loop {
            if !self.packed.rest().is_empty() {
                let number = self.packed.varint().ok()? as u32;
                return self.text(number);
            }
            match self.reader.key().ok()?? {
                LABELS_REFS => self.packed = self.reader.message().ok()?,
                LABELS_REF => {
                    let number = self.reader.varint().ok()? as u32;
                    return self.text(number);
                }
                key => self.reader.skip_unknown(key, 0).ok()?,
            }
        }
    }

    fn text(&self, number: u32) -> Option<&'a [u8]> {
        Some(self.symbols.get(number as usize)?.text.of(self.message))
    }
}

impl<'a> Iterator for LabelPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.next_text()?, self.next_text()?))
    }
}

const SYMBOLS: Key = len_key(4);
const TIMESERIES: Key = len_key(5);
const REQUEST: u32 = 1 << 4 | 1 << 5;

const LABELS_REFS: Key = len_key(1);
/// A reference that is not packed.
const LABELS_REF: Key = varint_key(1);
const SAMPLES: Key = len_key(2);
const HISTOGRAMS: Key = len_key(3);
const EXEMPLARS: Key = len_key(4);
const METADATA: Key = len_key(5);
const TIME_SERIES: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;

const SAMPLE_VALUE: Key = fixed64_key(1);
const SAMPLE_TIMESTAMP: Key = varint_key(2);
const SAMPLE_START: Key = varint_key(3);
const SAMPLE: u32 = 1 << 1 | 1 << 2 | 1 << 3;

const EXEMPLAR_VALUE: Key = fixed64_key(2);
const EXEMPLAR_TIMESTAMP: Key = varint_key(3);
const EXEMPLAR: u32 = 1 << 1 | 1 << 2 | 1 << 3;

const METADATA_TYPE: Key = varint_key(1);
const METADATA_HELP: Key = varint_key(3);
const METADATA_UNIT: Key = varint_key(4);
const METADATA_FIELDS: u32 = 1 << 1 | 1 << 3 | 1 << 4;

const HISTOGRAM: i32 = 3;
const GAUGE_HISTOGRAM: i32 = 4;
const SUMMARY: i32 = 5;

#[cfg(test)]
mod tests;
