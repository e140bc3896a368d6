//! Reads scrapes from files.

use std::path::Path;

use anyhow::{Context, Result};
use varve_advise::inventory::Scrapes;
use varve_ingest::text::{BadLine, Line, LineReader, Pairs, TextFormat};

use super::files;

/// Adds the series of a file.
///
/// # Errors
/// If it cannot be read or has an invalid line.
pub(super) fn add(scrapes: &mut Scrapes, job: &str, path: &Path) -> Result<()> {
    let file = files::read_file(path)?;
    let is_open_metrics = file.text.trim_end().ends_with("# EOF");
    let format = if is_open_metrics {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Prometheus
    };
    for labels in read(&file.text, format).with_context(|| file.name.to_string())? {
        scrapes.add(job, labels);
    }
    Ok(())
}

/// Returns the series of a scrape. A file does not say which version of OpenMetrics it is written
/// in: if it is invalid in 1.0, it is read as 2.0.
fn read(text: &str, format: TextFormat) -> Result<Vec<SeriesLabels>, BadLine> {
    match series_of(text, format) {
        Err(invalid_in_1) if format == TextFormat::OpenMetrics => {
            series_of(text, TextFormat::OpenMetrics2)
                .map_err(|invalid_in_2| invalid_in_1.or_later(invalid_in_2))
        }
        series => series,
    }
}

/// Names and values of the labels of a series.
type SeriesLabels = Vec<(String, String)>;

fn series_of(text: &str, format: TextFormat) -> Result<Vec<SeriesLabels>, BadLine> {
    let mut series = Vec::new();
    let mut lines = LineReader::new(text.as_bytes(), format);
    while let Some(line) = lines.read()? {
        match line {
            Line::Sample(sample) => series.push(owned(sample.labels)),
            Line::Composite(line) => {
                for sample in line.samples() {
                    series.push(owned(sample.labels));
                }
                if line.value.histogram.is_some() {
                    series.push(owned(line.labels));
                }
            }
            Line::Metadata(_) | Line::Series(_) | Line::Nothing => {}
        }
    }
    Ok(series)
}

fn owned(labels: Pairs<'_>) -> SeriesLabels {
    labels
        .into_iter()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use varve_advise::inventory::{Inventory, MetricId};

    use super::*;

    #[test]
    fn scrapes_are_read_in_all_formats() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut scrapes = Scrapes::default();
        for text in [
            "# TYPE a gauge\n\na{y=\"1\",x=\"2\",} 1 1700000000000\n",
            "a{x=\"3\"} 1 # {id=\"x\"} 0.5\n# EOF\n",
        ] {
            std::fs::write(file.path(), text).unwrap();
            add(&mut scrapes, "j", file.path()).unwrap();
        }
        let a = MetricId {
            job: "j".to_owned(),
            name: "a".to_owned(),
        };
        let Ok(sizes) = scrapes.metrics();
        let Ok(labels) = scrapes.labels(&a);
        assert_eq!(
            (sizes[&a].n_series, labels.join(",")),
            (2, "__name__,x,y".to_owned())
        );
        let text = "# TYPE h histogram\nh {count:1,sum:1,schema:0,zero_threshold:0,zero_count:1,bucket:[1:1,+Inf:1]}\n# EOF\n";
        std::fs::write(file.path(), text).unwrap();
        add(&mut scrapes, "j", file.path()).unwrap();
        let Ok(sizes) = scrapes.metrics();
        let found: Vec<_> = sizes
            .iter()
            .map(|(metric, size)| format!("{} {}", metric.name, size.n_series))
            .collect();
        let expect = ["a 2", "h 1", "h_bucket 2", "h_count 1", "h_sum 1"];
        assert_eq!(found, expect);
        std::fs::write(file.path(), "a 1\nb\n").unwrap();
        assert!(
            format!("{:#}", add(&mut scrapes, "j", file.path()).unwrap_err()).contains("line 2")
        );
    }
}
