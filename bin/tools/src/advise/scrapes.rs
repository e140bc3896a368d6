//! Reads scrapes from files.

use std::path::Path;

use anyhow::{Context, Result};
use varve_advise::inventory::Scrapes;
use varve_ingest::text::{Line, LineReader, TextFormat};

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
    let mut lines = LineReader::new(file.text.as_bytes(), format);
    while let Some(line) = lines.read().with_context(|| file.name.to_string())? {
        let Line::Sample(sample) = line else { continue };
        let labels = sample
            .labels
            .into_iter()
            .map(|(name, value)| (name.into_owned(), value.into_owned()));
        scrapes.add(job, labels.collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use varve_advise::inventory::{Inventory, MetricId};

    use super::*;

    #[test]
    fn scrapes_are_read_in_both_formats() {
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
        std::fs::write(file.path(), "a 1\nb\n").unwrap();
        assert!(
            format!("{:#}", add(&mut scrapes, "j", file.path()).unwrap_err()).contains("line 2")
        );
    }
}
