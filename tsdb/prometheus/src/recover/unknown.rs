//! Samples of series whose definition is lost: kept by number in a file of their own.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_tsdb::fs::Fs;
use varve_tsdb::histogram::HistogramCounts;
use varve_tsdb::{Error, Result};

use super::report::{LOST_SERIES_MAX, LostSeries, Report};
use super::shard::Value;
use crate::block::buffered::BufferedFile;

/// A sample without a series.
#[derive(Debug)]
pub(super) struct UnknownSample {
    pub(super) series: u64,
    pub(super) timestamp_ms: i64,
    pub(super) value: Value,
}

/// The file, made with the first sample.
#[derive(Debug)]
pub(super) struct UnknownSamples {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    file: Option<BufferedFile>,
}

impl UnknownSamples {
    /// Removes what an earlier run left.
    pub(super) fn create(fs: &Arc<dyn Fs>, path: &Path) -> Result<Self> {
        match fs.remove(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
            _ => Ok(Self { fs: Arc::clone(fs), path: path.to_owned(), file: None }),
        }
    }

    /// Keeps a sample.
    pub(super) fn push(&mut self, sample: &UnknownSample, report: &mut Report) -> Result<()> {
        report.n_unknown_samples += 1;
        let time = sample.timestamp_ms;
        let is_full = report.unknown_series.len() >= LOST_SERIES_MAX;
        if let Some(lost) = report.unknown_series.get_mut(&sample.series) {
            lost.n_samples += 1;
            (lost.min_ms, lost.max_ms) = (lost.min_ms.min(time), lost.max_ms.max(time));
        } else if !is_full {
            report.unknown_series.insert(sample.series, LostSeries { n_samples: 1, min_ms: time, max_ms: time });
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufferedFile::create(&*self.fs, &self.path)?),
        };
        file.write(line(sample).as_bytes())
    }

    /// Makes the file survive a power cut.
    pub(super) fn finish(self) -> Result<()> {
        self.file.map_or(Ok(()), |file| file.finish().map(|_| ()))
    }
}

fn line(sample: &UnknownSample) -> String {
    let mut line = format!(r#"{{"series":{},"timestamp_ms":{},"#, sample.series, sample.timestamp_ms);
    // Writing to a text does not fail.
    let _ = match &sample.value {
        Value::Float(value) => write!(line, r#""value":"{value:?}","bits":"{:016x}""#, value.to_bits()),
        Value::Histogram(histogram) => {
            let (count, positive, negative) = match &histogram.counts {
                HistogramCounts::Integer { count, positive, negative, .. } => {
                    (format!("{count}"), format!("{positive:?}"), format!("{negative:?}"))
                }
                HistogramCounts::Float { count, positive, negative, .. } => {
                    (format!("{count:?}"), format!("{positive:?}"), format!("{negative:?}"))
                }
            };
            let spans = |spans: &[varve_tsdb::histogram::BucketSpan]| {
                format!(
                    "{:?}",
                    spans.iter().map(|span| [i64::from(span.offset), i64::from(span.length)]).collect::<Vec<_>>()
                )
            };
            write!(
                line,
                r#""schema":{},"sum":"{:?}","count":"{count}","positive":"{positive}","positive_spans":{},"negative":"{negative}","negative_spans":{}"#,
                histogram.schema,
                histogram.sum,
                spans(&histogram.positive_spans),
                spans(&histogram.negative_spans)
            )
        }
    };
    line.push_str("}\n");
    line
}
