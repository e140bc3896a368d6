//! Import of scrape bodies (Prometheus' text format 0.0.4, OpenMetrics 1.0 and 2.0), and of
//! VictoriaMetrics' JSON lines.
//!
//! The body is decompressed, parsed line by line, and stored in batches of [`BATCH_SAMPLES_MAX`]
//! samples, so that a body of any size takes the memory of one batch. Each number of a native
//! histogram counts as a sample. An invalid line ends the
//! import, as does a resource that stays exhausted. The error says how many samples of earlier
//! lines are stored. A retry of the whole body stores nothing twice.
//!
//! Bounds: a line has at most 2 MiB, or 10 MiB if it is JSON (`lines`), a body [`SIZE_FACTOR`] times the maximum of a message. The work for a body is bounded by its size as
//! received ([`EXPANSION_MAX`]), by [`SAMPLELESS_LINES_MAX`] and by [`Import::timeout`].

mod composite;
mod cursor;
mod json_line;
mod line;
mod lines;
mod nan;
mod number;
mod openmetrics2;

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use varve_context::Limit;
use varve_model::metadata::MetricType;

use super::batch_builder::BatchBuilder;
use crate::admission::Origin;
use crate::compression::Compression;
use crate::error::WriteError;
use crate::outcome::{Rejections, Written};
use crate::receiver::Receiver;
use crate::write::buffers::Buffers;
use crate::write::{Decoded, Write};
pub use line::{
    CompositeLine, CompositeSample, CompositeSeries, CompositeValue, ExemplarPart, Line,
    MetadataLine, Pairs, SampleLine, SeriesLine,
};
pub use lines::{BadLine, LineReader, TextFormat};
use lines::{LineError, Lines};
pub use nan::NanMeaning;

/// The settings of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The format of the body.
    pub format: TextFormat,
    /// The compression of the body.
    pub compression: Compression,
    /// The timestamp of samples without one, in milliseconds.
    pub default_timestamp_ms: i64,
    /// Labels that all series get. They replace labels of the same name.
    pub extra_labels: Vec<(String, String)>,
    /// What a NaN means. `None`: what its format says. A JSON `null` is a staleness marker, any
    /// other NaN is a value.
    pub nan: Option<NanMeaning>,
    /// Maximum duration.
    pub timeout: Duration,
}

impl Receiver {
    /// Imports a scrape body, see the documentation of the module [`text`](crate::text).
    ///
    /// # Errors
    /// See [`WriteError`]. [`Malformed::Line`], and [`WriteError::PartialImport`] around other
    /// errors, say how many samples of earlier lines are stored. A part of the current batch may be
    /// stored too.
    pub fn import(
        &self,
        origin: &Origin<'_>,
        body: &[u8],
        import: &Import,
    ) -> Result<Written, WriteError> {
        self.counted(body, |buffers| {
            let mut importer = Importer {
                receiver: self,
                origin,
                import,
                started: Instant::now(),
                buffers,
                written: Written::default(),
            };
            let imported = importer.import(body);
            if imported.is_err() {
                self.counters.record_partial(&importer.written);
            }
            imported
        })
    }
}

struct Importer<'a> {
    receiver: &'a Receiver,
    origin: &'a Origin<'a>,
    import: &'a Import,
    started: Instant,
    buffers: &'a mut Buffers,
    /// The outcome of earlier batches.
    written: Written,
}

/// Whether a body has more lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    End,
}

/// The metadata lines of the current family.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: MetricType,
    help: String,
    unit: String,
}

impl Importer<'_> {
    fn import(&mut self, body: &[u8]) -> Result<Written, WriteError> {
        let limits = &self.receiver.limits;
        limits.check_body(body.len())?;
        let decompressed = self.import.compression.reader(body, limits)?;
        let reader = BufReader::with_capacity(BUFFER_SIZE, decompressed);
        let message_size_max = limits.decompressed_size_max as u64;
        let size_max = (message_size_max * SIZE_FACTOR)
            .min(message_size_max + body.len() as u64 * EXPANSION_MAX);

        let mut lines = Lines::new(reader, size_max, SAMPLELESS_LINES_MAX);
        let mut family = Family::default();
        let mut n_lines = 0;
        loop {
            match self.batch(&mut lines, &mut family) {
                Ok(Progress::More) => n_lines = lines.number,
                Ok(Progress::End) => return Ok(std::mem::take(&mut self.written)),
                Err(error) => return Err(self.with_stored(error, n_lines)),
            }
        }
    }

    /// Adds to an error that the first `n_lines` lines are stored.
    fn with_stored(&self, error: WriteError, n_lines: u64) -> WriteError {
        match error {
            error @ WriteError::Malformed(_) => error,
            error if n_lines == 0 => error,
            cause => WriteError::PartialImport {
                n_lines,
                n_samples: self.written.stored.total,
                cause: Box::new(cause),
            },
        }
    }

    /// Reads and stores a batch.
    fn batch<R: BufRead>(
        &mut self,
        lines: &mut Lines<R>,
        family: &mut Family,
    ) -> Result<Progress, WriteError> {
        check_time(self.started.elapsed(), self.import.timeout)?;
        let size = BUFFER_SIZE + self.import.format.line_size_max();
        let mut permit = self
            .receiver
            .admission
            .admit(self.origin, BUFFER_SIZE, size)?;

        let Buffers {
            message: encoded,
            batch,
            request,
        } = &mut *self.buffers;
        let mut builder = self.receiver.builder(batch, encoded, &mut permit);
        let mut n_samples = 0;
        let mut progress = Progress::More;
        while progress == Progress::More && n_samples < BATCH_SAMPLES_MAX {
            let added = match lines.next(self.import.format) {
                Ok(Some(line)) => add_line(line, self.import, family, &mut n_samples, &mut builder),
                Ok(None) => {
                    progress = Progress::End;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            // The batch of an invalid line is not stored: a part of the sender's intended lines may
            // be missing.
            added.map_err(|error| error.at_line(lines.number, self.written.stored.total))?;
            if lines.number.is_multiple_of(LINES_BETWEEN_CHECKS) {
                check_time(self.started.elapsed(), self.import.timeout)?;
            }
        }
        if progress == Progress::End {
            family.flush(&mut builder)?;
        }

        let decoded = Decoded {
            message: encoded,
            batch,
            rejections: Rejections::default(),
        };
        let written = Write::of_sender(self.receiver, permit, decoded, request)?.store()?;
        self.written.add(written);
        Ok(progress)
    }
}

fn check_time(elapsed: Duration, timeout: Duration) -> Result<(), WriteError> {
    if elapsed <= timeout {
        return Ok(());
    }
    let [size, limit] =
        [elapsed, timeout].map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    Err(WriteError::TooLarge {
        what: "duration of the import in ms",
        size,
        limit,
        bound: Limit::ImportTime,
    })
}

/// Adds a line to the batch.
fn add_line(
    line: Line<'_>,
    import: &Import,
    family: &mut Family,
    n_samples: &mut usize,
    builder: &mut BatchBuilder<'_, '_>,
) -> Result<(), LineError> {
    let line = match import.nan {
        Some(nan) => line.with_nan(nan),
        None => line,
    };
    match line {
        Line::Sample(mut sample) => {
            *n_samples += 1;
            add_extra(&mut sample.labels, &import.extra_labels);
            Ok(add_sample(&sample, import.default_timestamp_ms, builder)?)
        }
        Line::Composite(line) => {
            *n_samples += line.value.n_samples();
            Ok(add_composite(line, import, builder)?)
        }
        Line::Metadata(metadata) => Ok(family.add(metadata, builder)?),
        Line::Series(mut series) => {
            *n_samples += series.samples.len();
            builder.grow(size_of_val(&series.samples[..]))?;
            add_extra(&mut series.labels, &import.extra_labels);
            builder.series(
                series
                    .labels
                    .iter()
                    .map(|(name, value)| (&**name, &**value)),
            )?;
            for (timestamp_ms, value) in series.samples {
                builder.sample(timestamp_ms, value, 0)?;
            }
            Ok(builder.end_series()?)
        }
        Line::Nothing => Ok(()),
    }
}

fn add_sample(
    sample: &SampleLine<'_>,
    default_timestamp_ms: i64,
    builder: &mut BatchBuilder<'_, '_>,
) -> Result<(), WriteError> {
    let timestamp_ms = sample.timestamp_ms.unwrap_or(default_timestamp_ms);
    builder.series(
        sample
            .labels
            .iter()
            .map(|(name, value)| (&**name, &**value)),
    )?;
    builder.sample(timestamp_ms, sample.value, sample.start_ms)?;
    add_exemplars(&sample.exemplars, timestamp_ms, builder)?;
    builder.end_series()
}

fn add_composite<'a>(
    mut line: CompositeLine<'a>,
    import: &'a Import,
    builder: &mut BatchBuilder<'_, '_>,
) -> Result<(), WriteError> {
    builder.grow(line.value.size())?;
    for mut sample in line.samples() {
        add_extra(&mut sample.labels, &import.extra_labels);
        add_sample(&sample, import.default_timestamp_ms, builder)?;
    }

    let Some(histogram) = line.value.histogram.take() else {
        return Ok(());
    };
    add_extra(&mut line.labels, &import.extra_labels);
    let timestamp_ms = line.timestamp_ms.unwrap_or(import.default_timestamp_ms);
    builder.series(line.labels.iter().map(|(name, value)| (&**name, &**value)))?;
    builder.histogram(timestamp_ms, histogram, line.start_ms)?;
    add_exemplars(&line.exemplars, timestamp_ms, builder)?;
    builder.end_series()
}

/// Adds exemplars to the current series, whose sample has a timestamp.
fn add_exemplars(
    exemplars: &[ExemplarPart<'_>],
    timestamp_ms: i64,
    builder: &mut BatchBuilder<'_, '_>,
) -> Result<(), WriteError> {
    for exemplar in exemplars {
        let labels = exemplar
            .labels
            .iter()
            .map(|(name, value)| (&**name, &**value));
        builder.exemplar(
            labels,
            exemplar.value,
            exemplar.timestamp_ms.unwrap_or(timestamp_ms),
        )?;
    }
    Ok(())
}

fn add_extra<'a>(labels: &mut line::Pairs<'a>, extra: &'a [(String, String)]) {
    if !extra.is_empty() {
        labels.retain(|(name, _)| extra.iter().all(|(extra_name, _)| extra_name != name));
        labels.extend(
            extra
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
    }
    labels.sort();
}

impl Family {
    /// Adds a line. A line of another family ends the current family.
    fn add(
        &mut self,
        line: MetadataLine<'_>,
        builder: &mut BatchBuilder<'_, '_>,
    ) -> Result<(), WriteError> {
        let name = line.name();
        if self.name != name {
            self.flush(builder)?;
            self.name = name.to_owned();
        }
        match line {
            MetadataLine::Help(_, help) => self.help = help.into_owned(),
            MetadataLine::Type(_, kind) => self.kind = kind,
            MetadataLine::Unit(_, unit) => self.unit = unit.to_owned(),
        }
        Ok(())
    }

    fn flush(&mut self, builder: &mut BatchBuilder<'_, '_>) -> Result<(), WriteError> {
        let Self {
            name,
            kind,
            help,
            unit,
        } = std::mem::take(self);
        if name.is_empty() {
            Ok(())
        } else {
            builder.family(&name, kind, &help, &unit)
        }
    }
}

/// Maximum number of decompressed bytes for each byte of a body, beyond
/// [`Limits::decompressed_size_max`](crate::Limits::decompressed_size_max). Text with many equal
/// lines compresses to a hundredth.
const EXPANSION_MAX: u64 = 256;
/// Maximum number of lines without a sample, and one more for each sample: comments, metadata and
/// empty lines.
const SAMPLELESS_LINES_MAX: u64 = 1_000_000;
/// Number of lines between two checks of the timeout. A line has up to 10 MiB.
const LINES_BETWEEN_CHECKS: u64 = 64;
/// Maximum number of samples of a batch.
const BATCH_SAMPLES_MAX: usize = 10_000;
const BUFFER_SIZE: usize = 64 << 10;
/// The maximum size of a decompressed body is this many times
/// [`Limits::decompressed_size_max`](crate::Limits::decompressed_size_max).
const SIZE_FACTOR: u64 = 64;

#[cfg(test)]
mod tests;
