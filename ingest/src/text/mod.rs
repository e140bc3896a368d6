//! Import of scrape bodies: Prometheus' text format 0.0.4 and OpenMetrics 1.0.
//!
//! The body is decompressed and parsed line by line; what has come together is stored whenever it is [`BATCH_SERIES_MAX`]
//! samples, so that a body of any length takes the memory of one batch. A line that cannot be read ends the import, and
//! its error says how much of the lines before it is stored. So does what is scarce for longer than a request waits: nothing
//! of the body counts as taken then, and all of it may be sent again, since what is stored is not stored twice.
//!
//! Bounds: a line has at most [`LINE_SIZE_MAX`] bytes, a body [`SIZE_FACTOR`] times what a message may have.

mod line;

use std::io::{BufRead, BufReader, Read};

use crate::admission::Origin;
use crate::batch::BatchBuilder;
use crate::compression::Compression;
use crate::error::{Malformed, WriteError};
use crate::outcome::{Rejects, Written};
use crate::receiver::Receiver;
use crate::receiver::buffers::Scratch;
pub use line::{ExemplarPart, Line, MetadataLine, Pairs, SampleLine};

/// Which of the two formats a body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus' text format 0.0.4, timestamps in milliseconds.
    Prometheus,
    /// OpenMetrics 1.0, timestamps in seconds; the last line is `# EOF`.
    OpenMetrics,
}

/// Reads a scrape body line by line, for tools that do not store it.
#[derive(Debug)]
pub struct LineReader<R> {
    lines: Lines<R>,
    format: TextFormat,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// Counts from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl<R: BufRead> LineReader<R> {
    /// Reads a body of any length; a line has at most 2 MiB.
    pub fn new(reader: R, format: TextFormat) -> Self {
        Self { lines: Lines { reader, line: Vec::new(), number: 0, size: 0, size_max: u64::MAX }, format }
    }

    /// Reads the next line; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with the line; the reader is of no more use then.
    pub fn read(&mut self) -> Result<Option<Line<'_>>, BadLine> {
        let line = self.lines.number + 1;
        self.lines.next(self.format).map_err(|error| {
            let reason = match error {
                LineError::Line(reason) => reason,
                LineError::Request(error) => error.to_string(),
            };
            BadLine { line, reason }
        })
    }
}

/// How a body is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// What it is written in.
    pub format: TextFormat,
    /// How it is compressed.
    pub compression: Compression,
    /// The time of samples that have none, in milliseconds.
    pub now_ms: i64,
    /// Labels that all series get, in place of those of the same name.
    pub extra_labels: Vec<(String, String)>,
}

impl Receiver {
    /// Imports a scrape body, see the module `text`.
    ///
    /// # Errors
    /// See [`WriteError`]; of [`Malformed::Line`] the lines before may be stored, and it says so, as [`WriteError::Cut`] does
    /// of the other errors. Of the batch at hand a part may be stored too.
    pub fn import(&self, origin: &Origin<'_>, body: &[u8], import: &Import) -> Result<Written, WriteError> {
        let outcome = self.with_scratch(|scratch| {
            let mut importer = Importer { receiver: self, origin, import, scratch, written: Written::default() };
            importer.run(body)
        });
        self.note(body.len(), &outcome);
        outcome
    }
}

struct Importer<'a> {
    receiver: &'a Receiver,
    origin: &'a Origin<'a>,
    import: &'a Import,
    scratch: &'a mut Scratch,
    /// What has become of the batches so far.
    written: Written,
}

/// The metadata lines of the family at hand.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: i32,
    help: String,
    unit: String,
}

/// How far the body has been read.
#[derive(Debug)]
struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    size: u64,
    size_max: u64,
}

impl Importer<'_> {
    fn run(&mut self, body: &[u8]) -> Result<Written, WriteError> {
        self.receiver.limits().check_body(body.len())?;
        let size_max = self.receiver.limits().decompressed_size_max as u64 * SIZE_FACTOR;
        let reader =
            BufReader::with_capacity(BUFFER_SIZE, self.import.compression.reader(body, self.receiver.limits())?);
        let mut lines = Lines { reader, line: Vec::new(), number: 0, size: 0, size_max };
        let mut family = Family::default();
        let mut n_lines = 0;
        while !self.batch(&mut lines, &mut family).map_err(|error| self.cut(error, n_lines))? {
            n_lines = lines.number;
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// Tells of an error after so many lines that they are stored.
    fn cut(&self, error: WriteError, n_lines: u64) -> WriteError {
        match error {
            error @ WriteError::Malformed(_) => error,
            error if n_lines == 0 => error,
            cause => WriteError::Cut { n_lines, n_samples: self.written.samples_stored, cause: Box::new(cause) },
        }
    }

    /// Reads and stores a batch; returns whether the body is at its end.
    fn batch<R: BufRead>(&mut self, lines: &mut Lines<R>, family: &mut Family) -> Result<bool, WriteError> {
        let mut permit = self.receiver.enter(self.origin, BUFFER_SIZE, BUFFER_SIZE + LINE_SIZE_MAX)?;
        let Scratch { message: text, batch, passage } = &mut *self.scratch;
        let mut composer = self.receiver.composer(batch, text, &mut permit);
        let mut n_samples = 0;
        let mut is_end = false;
        while !is_end && n_samples < BATCH_SERIES_MAX {
            let read = lines.next(self.import.format).and_then(|line| {
                is_end = line.is_none();
                take(line, self.import, family, &mut n_samples, &mut composer)
            });
            // What was composed before the line is not stored: it may be the half of what its sender meant.
            read.map_err(|error| error.at(lines.number, self.written.samples_stored))?;
        }
        if is_end {
            family.flush(&mut composer)?;
        }
        let written = self.receiver.store(self.origin, (text, batch), permit, Rejects::default(), passage)?;
        self.written.add(written);
        Ok(is_end)
    }
}

/// Composes what a line says.
fn take(
    line: Option<Line<'_>>,
    import: &Import,
    family: &mut Family,
    n_samples: &mut usize,
    composer: &mut BatchBuilder<'_, '_>,
) -> Result<(), LineError> {
    match line {
        Some(Line::Sample(mut sample)) => {
            *n_samples += 1;
            add_extra(&mut sample.labels, &import.extra_labels);
            Ok(compose(&sample, import.now_ms, composer)?)
        }
        Some(Line::Metadata(metadata)) => Ok(family.note(metadata, composer)?),
        Some(Line::Nothing) | None => Ok(()),
    }
}

fn compose(sample: &SampleLine<'_>, now_ms: i64, composer: &mut BatchBuilder<'_, '_>) -> Result<(), WriteError> {
    let timestamp_ms = sample.timestamp_ms.unwrap_or(now_ms);
    composer.series(sample.labels.iter().map(|(name, value)| (&**name, &**value)))?;
    composer.sample(timestamp_ms, sample.value, 0)?;
    if let Some(exemplar) = &sample.exemplar {
        let labels = exemplar.labels.iter().map(|(name, value)| (&**name, &**value));
        composer.exemplar(labels, exemplar.value, exemplar.timestamp_ms.unwrap_or(timestamp_ms))?;
    }
    composer.end_series()
}

fn add_extra<'a>(labels: &mut line::Pairs<'a>, extra: &'a [(String, String)]) {
    if !extra.is_empty() {
        labels.retain(|(name, _)| extra.iter().all(|(of_extra, _)| of_extra != name));
        labels.extend(extra.iter().map(|(name, value)| (name.into(), value.into())));
    }
    labels.sort();
}

impl Family {
    /// Takes a line in; one of another family ends this one.
    fn note(&mut self, line: MetadataLine<'_>, composer: &mut BatchBuilder<'_, '_>) -> Result<(), WriteError> {
        let name = line.name();
        if self.name != name {
            self.flush(composer)?;
            self.name = name.to_owned();
        }
        match line {
            MetadataLine::Help(_, help) => self.help = help.into_owned(),
            MetadataLine::Type(_, kind) => self.kind = kind,
            MetadataLine::Unit(_, unit) => self.unit = unit.to_owned(),
        }
        Ok(())
    }

    fn flush(&mut self, composer: &mut BatchBuilder<'_, '_>) -> Result<(), WriteError> {
        let Self { name, kind, help, unit } = std::mem::take(self);
        if name.is_empty() { Ok(()) } else { composer.family(&name, kind, &help, &unit) }
    }
}

/// Why a line is not taken.
enum LineError {
    /// It cannot be read.
    Line(String),
    /// The request fails.
    Request(WriteError),
}

impl From<WriteError> for LineError {
    fn from(error: WriteError) -> Self {
        Self::Request(error)
    }
}

impl LineError {
    fn at(self, line: u64, n_stored: u64) -> WriteError {
        match self {
            Self::Line(reason) => Malformed::Line { line, reason, n_stored }.into(),
            Self::Request(error) => error,
        }
    }
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line; `None` at the end.
    fn next(&mut self, format: TextFormat) -> Result<Option<Line<'_>>, LineError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.reader).take(LINE_SIZE_MAX as u64 + 1);
        let n = limited.read_until(b'\n', &mut self.line).map_err(|error| LineError::Line(error.to_string()))?;
        self.size += n as u64;
        if self.size > self.size_max {
            let (what, flag) = ("decompressed size in bytes", "--ingest.decompressed-size-max (times 64)");
            return Err(WriteError::TooLarge { what, size: self.size, limit: self.size_max, flag }.into());
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if n > LINE_SIZE_MAX {
            return Err(LineError::Line(format!("longer than {LINE_SIZE_MAX} bytes")));
        }
        if n == 0 {
            // Without its last line a body of OpenMetrics may have been cut.
            let is_cut = format == TextFormat::OpenMetrics;
            return if is_cut { Err(LineError::Line("data does not end with # EOF".to_owned())) } else { Ok(None) };
        }
        if format == TextFormat::OpenMetrics && self.line == b"# EOF" {
            return self.check_end().map(|()| None);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| LineError::Line("not UTF-8".to_owned()))?;
        line::parse(text, format).map(Some).map_err(LineError::Line)
    }

    fn check_end(&mut self) -> Result<(), LineError> {
        let mut rest = [0; 1];
        match self.reader.read(&mut rest) {
            Ok(0) => Ok(()),
            Ok(_) => Err(LineError::Line("unexpected data after # EOF".to_owned())),
            Err(error) => Err(LineError::Line(error.to_string())),
        }
    }
}

/// Samples that are stored at a time.
const BATCH_SERIES_MAX: usize = 10_000;
const BUFFER_SIZE: usize = 64 << 10;
/// As large as the largest label set, with room for what is escaped.
const LINE_SIZE_MAX: usize = 2 << 20;
/// How many times [`Limits::decompressed_size_max`](crate::Limits::decompressed_size_max) a body may be decompressed.
const SIZE_FACTOR: u64 = 64;

#[cfg(test)]
mod tests;
