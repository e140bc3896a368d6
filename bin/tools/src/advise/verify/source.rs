//! The series and samples of a server, through the API of Prometheus.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use varve_client::{Client, escape};
use varve_model::{Labels, Sample};
use varve_promql::number::parse_float;

type LabelMap = BTreeMap<String, String>;

/// A server, and the time of the evaluation. The client bounds the size of each response.
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) time_ms: i64,
}

#[derive(Deserialize)]
struct Matrix {
    result: Vec<MatrixSeries>,
}

#[derive(Deserialize)]
struct MatrixSeries {
    metric: LabelMap,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<serde::de::IgnoredAny>,
}

impl Source {
    /// Returns the label sets that a selector selects within `reach_ms` before the evaluation.
    ///
    /// # Errors
    /// The server's error, or a response that is too large.
    pub(super) fn label_sets(&mut self, selector: &str, reach_ms: i64) -> Result<Vec<Labels>> {
        let form = format!(
            "match[]={}&start={}&end={}",
            escape(selector),
            seconds(self.time_ms.saturating_sub(reach_ms)),
            seconds(self.time_ms)
        );
        let data = self.client.post_data("/api/v1/series", &form)?;
        let maps = Vec::<LabelMap>::deserialize(&data).context("parse the response")?;
        maps.iter().map(labels).collect()
    }

    /// Returns the samples that a selector selects within `reach_ms` before the evaluation, by
    /// series.
    ///
    /// # Errors
    /// The server's error, a response that is too large, or native histograms, whose JSON is not
    /// exact.
    pub(super) fn samples(
        &mut self,
        selector: &str,
        reach_ms: i64,
    ) -> Result<Vec<(Labels, Vec<Sample>)>> {
        // The start of a range is not part of it.
        let query = format!("{selector}[{}ms]", reach_ms.saturating_add(1));
        let form = format!("query={}&time={}", escape(&query), seconds(self.time_ms));
        let data = self.client.post_data("/api/v1/query", &form)?;
        let matrix = Matrix::deserialize(&data).context("parse the response")?;
        let mut all = Vec::with_capacity(matrix.result.len());
        for series in matrix.result {
            ensure!(
                series.histograms.is_empty(),
                "it reads native histograms, which are not supported"
            );
            let mut samples = Vec::with_capacity(series.values.len());
            for (time_s, value) in &series.values {
                samples.push(Sample {
                    timestamp_ms: (time_s * 1000.0).round() as i64,
                    value: parse_float(value).map_err(|error| anyhow!("{value:?}: {error}"))?,
                });
            }
            all.push((labels(&series.metric)?, samples));
        }
        Ok(all)
    }
}

fn labels(map: &LabelMap) -> Result<Labels> {
    let pairs = map.iter().map(|(name, value)| (&**name, &**value));
    Labels::from_pairs(pairs).map_err(|error| anyhow!("the series {map:?}: {error}"))
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}
