//! `varve tsdb dump` and `varve tsdb dump-openmetrics`: prints all samples, one per line.
//!
//! Memory: the indexes of the blocks and the samples of one series.

use std::io::{BufWriter, Write};

use anyhow::Result;
use varve_model::labels::METRIC_NAME;
use varve_model::{SampleColumns, TimeRange};
use varve_promql::decimal::General;
use varve_promql::print_label;
use varve_promql::quote::quoted;
use varve_query::histogram::print_stored;
use varve_system::printing::stdout;
use varve_wire::exposition::write_series;

use super::args::TsdbDumpArgs;
use super::source::{Selection, Visited, visit};
use crate::selector::parse_matchers;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `{__name__="up", job="a"} 1 1700000000000`
    Prometheus,
    /// `up{job="a"} 1 1700000000.000`, without histograms, with a final `# EOF`.
    OpenMetrics,
}

/// Prints the samples by series, in label order.
///
/// # Errors
/// If a selector is invalid, or the directory cannot be read.
pub(super) fn dump(args: &TsdbDumpArgs, format: Format) -> Result<Visited> {
    let selectors = args
        .selectors
        .iter()
        .map(|selector| parse_matchers(selector))
        .collect::<Result<_>>()?;
    let selection = Selection {
        selectors,
        range: TimeRange {
            start_ms: args.min_time,
            end_ms: args.max_time,
        },
    };
    let mut out = BufWriter::new(stdout());
    let sandbox = args.sandbox.sandbox_dir_root.as_deref();
    let visited = visit(&args.path, sandbox, &selection, &mut |labels, columns| {
        write(&mut out, format, labels, columns)
    })?;
    if format == Format::OpenMetrics {
        writeln!(out, "# EOF")?;
    }
    out.flush()?;
    Ok(visited)
}

/// Prints samples. Returns their number.
fn write(
    out: &mut dyn Write,
    format: Format,
    labels: &[(&str, &str)],
    columns: &SampleColumns,
) -> Result<usize> {
    match format {
        Format::Prometheus => write_prometheus(out, labels, columns),
        Format::OpenMetrics => write_open_metrics(out, labels, columns),
    }
}

fn write_prometheus(
    out: &mut dyn Write,
    labels: &[(&str, &str)],
    columns: &SampleColumns,
) -> Result<usize> {
    let labels = labels
        .iter()
        .map(|(key, value)| format!("{}={}", print_label(key), quoted(value)));
    let labels = format!("{{{}}}", labels.collect::<Vec<_>>().join(", "));
    let mut histograms = columns.histograms.iter().peekable();
    for (i, sample) in columns.iter().enumerate() {
        match histograms.next_if(|(idx, _)| *idx as usize == i) {
            Some((_, histogram)) => writeln!(
                out,
                "{labels} {} {}",
                print_stored(histogram),
                sample.timestamp_ms
            )?,
            None => writeln!(
                out,
                "{labels} {} {}",
                General(sample.value),
                sample.timestamp_ms
            )?,
        }
    }
    Ok(columns.len())
}

/// Prints the samples before the first histogram, as promtool does. Unlike there, names and values
/// have the quotes and escapes of the format, so that every series can be read back.
fn write_open_metrics(
    out: &mut dyn Write,
    labels: &[(&str, &str)],
    columns: &SampleColumns,
) -> Result<usize> {
    let name = labels
        .iter()
        .find(|(name, _)| *name == METRIC_NAME)
        .map_or("", |(_, value)| value);
    let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
    let mut series = Vec::new();
    write_series(&mut series, name, others.copied());
    if !series.ends_with(b"}") {
        series.extend_from_slice(b"{}");
    }
    let n_floats = columns
        .histograms
        .first()
        .map_or(columns.len(), |(idx, _)| *idx as usize);
    for sample in columns.iter().take(n_floats) {
        let time_s = sample.timestamp_ms as f64 / 1000.0;
        out.write_all(&series)?;
        writeln!(out, " {} {time_s:.3}", General(sample.value))?;
    }
    Ok(n_floats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_ingest::text::{Line, LineReader, TextFormat};
    use varve_model::Sample;

    #[test]
    fn samples_are_printed_as_promtool_prints_them() {
        let labels = [("__name__", "up"), ("a.b", "c\"d"), ("job", "x")];
        let mut columns = SampleColumns::default();
        for (timestamp_ms, value) in [(1500, 1e6), (2000, f64::NAN), (2500, f64::NEG_INFINITY)] {
            columns.push(Sample {
                timestamp_ms,
                value,
            });
        }
        let print = |format| {
            let mut out = Vec::new();
            write(&mut out, format, &labels, &columns).unwrap();
            String::from_utf8(out).unwrap()
        };
        let key = r#"{__name__="up", "a.b"="c\"d", job="x"}"#;
        assert_eq!(
            print(Format::Prometheus),
            format!("{key} 1e+06 1500\n{key} NaN 2000\n{key} -Inf 2500\n")
        );
        let key = r#"up{"a.b"="c\"d",job="x"}"#;
        assert_eq!(
            print(Format::OpenMetrics),
            format!("{key} 1e+06 1.500\n{key} NaN 2.000\n{key} -Inf 2.500\n")
        );
    }

    /// Names that are not legacy names had no quotes, and neither Varve nor promtool read them
    /// back.
    #[test]
    fn every_series_is_read_back_from_openmetrics() {
        let mut columns = SampleColumns::default();
        columns.push(Sample {
            timestamp_ms: 1500,
            value: 2.5,
        });
        let all: [&[(&str, &str)]; 4] = [
            &[("__name__", "up")],
            &[("__name__", ":a:b"), ("c:d", "e"), ("f", "")],
            &[
                ("__name__", "http.server"),
                ("a b", "\t\r\u{1}"),
                ("é", "\"\\n\n"),
            ],
            &[("1", "\\"), ("__name__", "9")],
        ];
        for labels in all {
            let mut text = Vec::new();
            write_open_metrics(&mut text, labels, &columns).unwrap();
            text.extend_from_slice(b"# EOF\n");
            let mut lines = LineReader::new(&*text, TextFormat::OpenMetrics);
            let Line::Sample(mut read) = lines.read().unwrap().unwrap() else {
                panic!("{labels:?}");
            };
            read.labels.sort();
            let found: Vec<_> = read
                .labels
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect();
            assert_eq!(found, labels);
            assert_eq!((read.timestamp_ms, read.value), (Some(1500), 2.5));
        }
    }
}
