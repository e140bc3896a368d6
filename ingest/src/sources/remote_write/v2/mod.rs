//! `io.prometheus.write.v2.Request` of remote write 2.0
//! (`prompb/io/prometheus/write/v2/types.proto`), decoded in place.
//!
//! Strings are in a symbol table. Label sets are references to symbols. Each symbol is hashed once,
//! and the key of a label set combines the hashes of its symbols ([`refs`]), so that known series
//! need no strings. Proto3's rules, histograms and exemplars are handled as in version 1.0.
//!
//! Bounds: a label set of a few bytes may refer to long symbols. The total size of all label sets
//! of a request with resolved symbols is at most
//! [`RESOLVED_FACTOR`](crate::limits::RESOLVED_FACTOR) times the maximum of a message.

use varve_model::Sample;
use varve_model::metadata::MetricType;
use varve_protobuf::{Key, Reader, Span, fixed64_key, len_key, varint_key};

use label_pairs::{LABELS_REF, LABELS_REFS};
use refs::{LabelRefs, Resolver};

use super::histogram;
use super::v1::{EXEMPLAR_TIMESTAMP, EXEMPLAR_VALUE, plain_sample};
use crate::batch::{
    DecodedBatch, FamilyEntry, HistogramEntry, RouteHasher, RouteKey, Symbol, Version,
};
use crate::error::{Malformed, WriteError};
use crate::limits::Limits;

mod label_pairs;
mod refs;

pub(crate) use label_pairs::LabelPairs;

/// Decodes a decompressed `io.prometheus.write.v2.Request` in place, replacing the contents of
/// `batch`.
///
/// Unknown fields are skipped. References to symbols are checked. Label sets are checked only for
/// unknown series.
///
/// # Errors
/// The errors of [`decode_v1`](super::decode_v1).
pub fn decode(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    limits.check_decompressed(message.len() as u64)?;
    batch.clear();
    batch.version = Version::V2;
    decode_symbols(message, hasher, limits, batch)?;
    let packed = Span::default();
    let refs = LabelRefs::default();
    let mut decoder = Decoder {
        message,
        hasher,
        limits,
        batch,
        resolved_size: 0,
        packed,
        refs,
        family: None,
    };
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

/// Decodes the symbols first, since a message may have its fields in any order.
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
                batch.symbols.push(Symbol {
                    text: symbol.span(),
                    hash: hasher.hash(symbol.rest()),
                });
                limits.check_symbols(batch.symbols.len())?;
            }
            TIMESERIES => drop(reader.message()?),
            _ => reader.skip_unknown(key, REQUEST)?,
        }
    }
    // A missing reference is 0 and must mean the empty string.
    let is_valid = batch
        .symbols
        .first()
        .is_none_or(|first| first.text.is_empty());
    if is_valid {
        Ok(())
    } else {
        Err(Malformed::FirstSymbol.into())
    }
}

struct Decoder<'a> {
    message: &'a [u8],
    hasher: &'a RouteHasher,
    limits: &'a Limits,
    batch: &'a mut DecodedBatch,
    /// Bytes of all label sets so far, with resolved symbols.
    resolved_size: u64,
    /// The packed references of the last plain series, and what was computed from them.
    packed: Span,
    refs: LabelRefs,
    /// The metric name and the metadata of the series before, if it has a metric name.
    family: Option<(u32, MetadataFields)>,
}

/// The decoded fields of a series.
#[derive(Debug, Default)]
struct Fields {
    labels: Span,
    /// Number of fields with references. If there are several, or an unpacked one, the series takes
    /// the slow path.
    n_labels: usize,
    is_packed: bool,
    refs: LabelRefs,
    metadata: MetadataFields,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct MetadataFields {
    kind: MetricType,
    help: u32,
    unit: u32,
}

impl Decoder<'_> {
    fn series(&mut self, mut reader: Reader<'_>) -> Result<(), WriteError> {
        let whole = reader.span();
        // Fast path: a series as most senders encode it.
        if let Some(plain) = plain_series(reader.rest()) {
            return self.plain_series(whole, plain);
        }
        let mut fields = Fields {
            is_packed: true,
            ..Fields::default()
        };
        loop {
            let start = reader.at();
            let Some(key) = reader.key()? else { break };
            match key {
                LABELS_REFS => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        fields.refs.push(self.resolver(), packed.varint()? as u32)?;
                    }
                    (fields.labels, fields.n_labels) =
                        (Span::new(start, reader.at()), fields.n_labels + 1);
                }
                LABELS_REF => {
                    let number = reader.varint()? as u32;
                    fields.refs.push(self.resolver(), number)?;
                    fields.is_packed = false;
                }
                _ => self.field(key, &mut reader, &mut fields)?,
            }
        }
        let is_contiguous = fields.is_packed && fields.n_labels <= 1;
        let labels = if is_contiguous { fields.labels } else { whole };
        let key = is_contiguous.then(|| fields.refs.key.key());
        self.end_series(labels, key, fields.refs.n, fields.refs.size)?;
        self.family(fields.refs.metric_name(), fields.metadata)
    }

    #[inline]
    fn plain_series(&mut self, whole: Span, series: PlainSeries) -> Result<(), WriteError> {
        // Key and size precede the references.
        let labels = Span {
            end: whole.start + 2 + series.refs_size,
            ..whole
        };
        let before = self.packed;
        let packed = Span {
            start: labels.start + 2,
            ..labels
        };
        let resolver = Resolver {
            message: self.message,
            hasher: self.hasher,
            symbols: &self.batch.symbols,
        };
        self.refs.replace(resolver, before, packed)?;
        self.packed = packed;
        self.batch.samples.push(series.sample);
        self.limits.check_samples(self.batch.n_all_samples())?;
        let mut metadata = MetadataFields::default();
        if series.metadata_size > 0 {
            let fields = Span {
                start: whole.end - series.metadata_size,
                ..whole
            };
            decode_metadata(Reader::over(self.message, fields), &mut metadata)?;
        }
        self.end_series(
            labels,
            Some(self.refs.key.key()),
            self.refs.n,
            self.refs.size,
        )?;
        self.family(self.refs.metric_name(), metadata)
    }

    #[inline]
    fn end_series(
        &mut self,
        labels: Span,
        key: Option<RouteKey>,
        n_refs: usize,
        size: u64,
    ) -> Result<(), WriteError> {
        check_even(n_refs)?;
        self.resolved_size += size;
        self.limits.check_resolved(self.resolved_size)?;
        self.batch.push_series(labels, key);
        self.limits.check_series(self.batch.series.len())
    }

    fn field(
        &mut self,
        key: Key,
        reader: &mut Reader<'_>,
        fields: &mut Fields,
    ) -> Result<(), WriteError> {
        match key {
            SAMPLES => {
                let (sample, start_ms) = decode_sample(reader.message()?)?;
                self.batch.push_sample(sample, start_ms);
                self.limits.check_samples(self.batch.n_all_samples())?;
            }
            HISTOGRAMS => {
                let histogram = reader.message()?;
                self.batch
                    .histograms
                    .push(HistogramEntry::Encoded(histogram.span()));
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

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            message: self.message,
            hasher: self.hasher,
            symbols: &self.batch.symbols,
        }
    }

    /// Checks a reference of an exemplar. Adds the size of its symbol to the total, which is
    /// checked after each series.
    fn exemplar_ref(&mut self, number: u32) -> Result<(), WriteError> {
        self.resolved_size += self.resolver().symbol(number)?.text.len() as u64;
        Ok(())
    }

    /// Checks an exemplar.
    fn exemplar(&mut self, mut reader: Reader<'_>) -> Result<(), WriteError> {
        let mut n_refs = 0;
        while let Some(key) = reader.key()? {
            match key {
                LABELS_REFS => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        self.exemplar_ref(packed.varint()? as u32)?;
                        n_refs += 1;
                    }
                }
                LABELS_REF => {
                    self.exemplar_ref(reader.varint()? as u32)?;
                    n_refs += 1;
                }
                EXEMPLAR_VALUE => drop(reader.fixed64()?),
                EXEMPLAR_TIMESTAMP => drop(reader.varint()?),
                _ => reader.skip_unknown(key, EXEMPLAR)?,
            }
        }
        Ok(check_even(n_refs)?)
    }

    /// Adds the metadata of a series' family. Senders repeat it with each series: consecutive
    /// series of one family add it once.
    fn family(
        &mut self,
        metric_name: Option<u32>,
        metadata: MetadataFields,
    ) -> Result<(), WriteError> {
        let MetadataFields { kind, help, unit } = metadata;
        let family = metric_name.map(|name| (name, metadata));
        // Fast path: same metric and metadata as in the series before.
        if family.is_some() && family == self.family {
            return Ok(());
        }
        self.family = family;
        let symbols = &self.batch.symbols;
        let help = optional_text(symbols, help)?;
        let unit = optional_text(symbols, unit)?;
        let Some(name) = metric_name.and_then(|number| symbols.get(number as usize)) else {
            return Ok(());
        };
        if kind == MetricType::Unknown && help.is_empty() && unit.is_empty() {
            return Ok(());
        }
        let name = family_name(self.message, name.text, kind);
        let family = FamilyEntry {
            name,
            help,
            unit,
            kind,
        };
        if self
            .batch
            .families
            .last()
            .is_none_or(|last| !last.is_same(&family, self.message))
        {
            self.batch.families.push(family);
            self.limits.check_families(self.batch.families.len())?;
        }
        Ok(())
    }
}

/// Returns the text of an optional reference.
fn optional_text(symbols: &[Symbol], number: u32) -> Result<Span, Malformed> {
    match symbols.get(number as usize) {
        Some(symbol) => Ok(symbol.text),
        // A missing reference is 0. Symbol 0 is the empty string, also if the symbol table is empty.
        None if number == 0 => Ok(Span::default()),
        None => Err(Malformed::Symbol {
            number,
            n_symbols: symbols.len(),
        }),
    }
}

fn check_even(n_refs: usize) -> Result<(), Malformed> {
    if n_refs.is_multiple_of(2) {
        Ok(())
    } else {
        Err(Malformed::LabelRefs { n_refs })
    }
}

/// Removes the suffix that a classic histogram or a summary adds to the name of its family.
fn family_name(message: &[u8], name: Span, kind: MetricType) -> Span {
    let string = name.slice(message);
    for suffix in kind.series_suffixes() {
        if string.ends_with(suffix.as_bytes()) && string.len() > suffix.len() {
            return Span::new(name.start as usize, name.end as usize - suffix.len());
        }
    }
    name
}

/// A series that consists of packed references, one sample, and metadata or nothing.
struct PlainSeries {
    /// Size of the references in bytes.
    refs_size: u32,
    sample: Sample,
    /// Size of the fields of the metadata, which end the series.
    metadata_size: u32,
}

#[inline]
fn plain_series(series: &[u8]) -> Option<PlainSeries> {
    let [LABELS_REFS_KEY, refs_size @ ..0x80, rest @ ..] = series else {
        return None;
    };
    let [SAMPLES_KEY, size @ ..0x80, rest @ ..] = rest.get(usize::from(*refs_size)..)? else {
        return None;
    };
    let (sample, rest) = rest.split_at_checked(usize::from(*size))?;
    let metadata_size = match rest {
        [] => 0,
        [METADATA_KEY, size @ ..0x80, metadata @ ..] if metadata.len() == usize::from(*size) => {
            *size
        }
        _ => return None,
    };
    let sample = plain_sample(sample)?;
    Some(PlainSeries {
        refs_size: (*refs_size).into(),
        sample,
        metadata_size: metadata_size.into(),
    })
}

#[inline]
fn decode_sample(mut reader: Reader<'_>) -> Result<(Sample, i64), Malformed> {
    let mut sample = Sample {
        timestamp_ms: 0,
        value: 0.0,
    };
    let mut start_ms = 0;
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
            METADATA_TYPE => to.kind = MetricType::from_number(reader.varint()? as i32),
            METADATA_HELP => to.help = reader.varint()? as u32,
            METADATA_UNIT => to.unit = reader.varint()? as u32,
            _ => reader.skip_unknown(key, METADATA_FIELDS)?,
        }
    }
    Ok(())
}

const SYMBOLS: Key = len_key(4);
const TIMESERIES: Key = len_key(5);
const REQUEST: u32 = 1 << 4 | 1 << 5;

const SAMPLES: Key = len_key(2);
const HISTOGRAMS: Key = len_key(3);
const EXEMPLARS: Key = len_key(4);
const METADATA: Key = len_key(5);
/// Keys as single bytes: their varints have one byte.
const LABELS_REFS_KEY: u8 = LABELS_REFS as u8;
const SAMPLES_KEY: u8 = SAMPLES as u8;
const METADATA_KEY: u8 = METADATA as u8;
const TIME_SERIES: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;

const SAMPLE_VALUE: Key = fixed64_key(1);
const SAMPLE_TIMESTAMP: Key = varint_key(2);
const SAMPLE_START: Key = varint_key(3);
const SAMPLE: u32 = 1 << 1 | 1 << 2 | 1 << 3;

const EXEMPLAR: u32 = 1 << 1 | 1 << 2 | 1 << 3;

const METADATA_TYPE: Key = varint_key(1);
const METADATA_HELP: Key = varint_key(3);
const METADATA_UNIT: Key = varint_key(4);
const METADATA_FIELDS: u32 = 1 << 1 | 1 << 3 | 1 << 4;

#[cfg(test)]
pub(crate) mod tests;
