//! The lines of a scrape body: their format, and their reader.

use std::io::{BufRead, Read};

use varve_context::Limit;

use super::line::{Line, MetadataLine};
use super::openmetrics2::CurrentFamily;
use super::{cursor, json_line, openmetrics2};
use crate::error::{Malformed, WriteError};

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus' text format 0.0.4, with timestamps in milliseconds.
    Prometheus,
    /// OpenMetrics 1.0, with timestamps in seconds. The last line is `# EOF`.
    OpenMetrics,
    /// OpenMetrics 2.0, as OpenMetrics 1.0, with histograms and summaries in one line.
    OpenMetrics2,
    /// VictoriaMetrics' JSON lines, each with a series and its samples.
    JsonLines,
}

impl TextFormat {
    /// Parses a line without its line break. `family` is that of the previous line.
    pub(super) fn parse<'a>(
        self,
        line: &'a str,
        family: &mut CurrentFamily,
    ) -> Result<Line<'a>, String> {
        match self {
            Self::Prometheus => cursor::parse(line, false),
            Self::OpenMetrics => cursor::parse(line, true),
            Self::OpenMetrics2 => openmetrics2::parse(line, family),
            Self::JsonLines => json_line::parse(line),
        }
    }

    /// Returns `true` if the last line of a body is `# EOF`.
    fn has_end(self) -> bool {
        matches!(self, Self::OpenMetrics | Self::OpenMetrics2)
    }

    /// Returns the maximum size of a line in bytes.
    pub(super) fn line_size_max(self) -> usize {
        if self == Self::JsonLines {
            JSON_LINE_SIZE_MAX
        } else {
            LINE_SIZE_MAX
        }
    }
}

/// Reads a scrape body line by line, for tools.
#[derive(Debug)]
pub struct LineReader<R> {
    lines: Lines<R>,
    format: TextFormat,
}

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// Line number, from 1.
    pub line: u64,
    /// The error.
    pub reason: String,
}

impl BadLine {
    /// Of the errors of a text in two versions of its format, returns that of the version in which
    /// the text is written: it is further down.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        if other.line < self.line { self } else { other }
    }
}

impl<R: BufRead> LineReader<R> {
    /// Creates a reader of a body of any size. A line has at most 2 MiB, or 10 MiB if it is JSON.
    pub fn new(reader: R, format: TextFormat) -> Self {
        Self {
            lines: Lines::new(reader, u64::MAX, u64::MAX),
            format,
        }
    }

    /// Reads the next line. Returns `None` at the end.
    ///
    /// # Errors
    /// The number of the line and the reason why it is invalid. The reader must not be used
    /// afterwards.
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

/// The reader of a body's lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    pub(super) number: u64,
    /// The family of the last line; before OpenMetrics 2.0, only the type of the last `# TYPE`.
    family: CurrentFamily,
    /// Number of lines with a sample.
    n_samples: u64,
    size: u64,
    size_max: u64,
    /// Maximum number of lines without a sample, besides one for each sample.
    sampleless_max: u64,
}

/// The reason why reading stops at a line.
pub(super) enum LineError {
    /// The line is invalid.
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
    pub(super) fn at_line(self, line: u64, n_stored: u64) -> WriteError {
        match self {
            Self::Line(reason) => Malformed::Line {
                line,
                reason,
                n_stored,
            }
            .into(),
            Self::Request(error) => error,
        }
    }
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, size_max: u64, sampleless_max: u64) -> Self {
        Self {
            reader,
            line: Vec::new(),
            number: 0,
            family: CurrentFamily::default(),
            n_samples: 0,
            size: 0,
            size_max,
            sampleless_max,
        }
    }

    /// Reads the next line. Returns `None` at the end.
    pub(super) fn next(&mut self, format: TextFormat) -> Result<Option<Line<'_>>, LineError> {
        self.line.clear();
        self.number += 1;
        let line_size_max = format.line_size_max();
        let mut limited = (&mut self.reader).take(line_size_max as u64 + 1);
        let n = limited
            .read_until(b'\n', &mut self.line)
            .map_err(|error| LineError::Line(error.to_string()))?;
        self.size += n as u64;
        self.check_bounds()?;

        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if n > line_size_max {
            return Err(LineError::Line(format!(
                "longer than {line_size_max} bytes"
            )));
        }

        if n == 0 {
            // An OpenMetrics body without `# EOF` may be truncated.
            return if format.has_end() {
                Err(LineError::Line("data does not end with # EOF".to_owned()))
            } else {
                Ok(None)
            };
        }
        if format.has_end() && self.line == b"# EOF" {
            self.check_end()?;
            return Ok(None);
        }

        let line =
            std::str::from_utf8(&self.line).map_err(|_| LineError::Line("not UTF-8".to_owned()))?;
        let mut line = format
            .parse(line, &mut self.family)
            .map_err(LineError::Line)?;

        match &mut line {
            Line::Sample(sample) => {
                sample.normalize(self.family.kind);
                self.n_samples += 1;
            }
            Line::Composite(_) => self.n_samples += 1,
            Line::Series(series) => self.n_samples += u64::from(!series.samples.is_empty()),
            Line::Metadata(MetadataLine::Type(_, kind)) => self.family.kind = *kind,
            Line::Metadata(_) | Line::Nothing => {}
        }
        Ok(Some(line))
    }

    /// Checks the bounds on the work for a body.
    fn check_bounds(&self) -> Result<(), WriteError> {
        if self.size > self.size_max {
            let what = "decompressed size in bytes";
            return Err(WriteError::TooLarge {
                what,
                size: self.size,
                limit: self.size_max,
                bound: Limit::ImportSize,
            });
        }
        let n_sampleless = self.number - self.n_samples;
        let limit = self.sampleless_max.saturating_add(self.n_samples);
        if n_sampleless > limit {
            let what = "number of lines without a sample";
            return Err(WriteError::TooLarge {
                what,
                size: n_sampleless,
                limit,
                bound: Limit::Other("one for each sample"),
            });
        }
        Ok(())
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

/// Maximum bytes of a line: the maximum label set, with room for escapes.
pub(super) const LINE_SIZE_MAX: usize = 2 << 20;
/// Maximum bytes of a JSON line, as in VictoriaMetrics. Its samples take up to eight times as much.
const JSON_LINE_SIZE_MAX: usize = 10 << 20;
