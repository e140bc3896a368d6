//! The alerts that fired: of a backtest, or of the series `ALERTS` of a server that ran live.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Result, bail};
use serde::Deserialize;

/// All alerts of a run, by rule.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Alerts {
    pub(super) rules: Vec<Rule>,
    /// The backtest has found more alerts than it returned.
    #[serde(default)]
    pub(super) is_truncated: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) name: String,
    #[serde(default)]
    pub(super) failures: u64,
    #[serde(default)]
    pub(super) last_error: String,
    pub(super) firings: Vec<Firing>,
}

/// An alert that began to fire.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Firing {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) fired_at_ms: i64,
}

/// A response of `/api/v1/query_range`.
#[derive(Debug, Deserialize)]
struct RangeResponse {
    data: Matrix,
}

#[derive(Debug, Deserialize)]
struct Matrix {
    result: Vec<AlertSeries>,
}

#[derive(Debug, Deserialize)]
struct AlertSeries {
    metric: BTreeMap<String, String>,
    /// Seconds and value. The time is all that counts.
    values: Vec<(f64, String)>,
}

impl Firing {
    /// Returns the value of a label, or `None` if it is absent or empty.
    pub(super) fn label(&self, name: &str) -> Option<&String> {
        self.labels.get(name).filter(|value| !value.is_empty())
    }
}

impl Alerts {
    /// Reads the output of `varve rules backtest --output json`.
    ///
    /// # Errors
    /// If it is no such output.
    pub(super) fn from_backtest(input: impl Read) -> Result<Self> {
        Ok(serde_json::from_reader(input)?)
    }

    /// Reads the response of `/api/v1/query_range` for `ALERTS{alertstate="firing"}`. An alert began
    /// to fire at the first sample of its series, and after each gap. The step is the shortest time
    /// between two samples.
    ///
    /// # Errors
    /// If it is no such response, or a series has no label `alertname`.
    pub(super) fn from_series(input: impl Read) -> Result<Self> {
        let response: RangeResponse = serde_json::from_reader(input)?;
        let series = response.data.result;
        let step = shortest_step(&series);
        let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
        for AlertSeries { mut metric, values } in series {
            metric.remove("__name__");
            metric.remove("alertstate");
            let Some(name) = metric.get("alertname").cloned() else {
                bail!("a series has no label alertname: {metric:?}");
            };
            let rule = rules.entry(name.clone()).or_insert_with(|| Rule {
                name,
                ..Rule::default()
            });
            let mut last: Option<f64> = None;
            for (seconds, _) in values {
                let continues = last.is_some_and(|last| seconds - last < 1.5 * step);
                last = Some(seconds);
                if !continues {
                    rule.firings.push(Firing {
                        labels: metric.clone(),
                        fired_at_ms: (seconds * 1000.0) as i64,
                    });
                }
            }
        }
        Ok(Self {
            rules: rules.into_values().collect(),
            is_truncated: false,
        })
    }
}

fn shortest_step(series: &[AlertSeries]) -> f64 {
    let mut shortest = f64::INFINITY;
    for one in series {
        for pair in one.values.windows(2) {
            shortest = shortest.min(pair[1].0 - pair[0].0);
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_begins_at_its_first_sample_and_after_each_gap() {
        let text = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"__name__":"ALERTS","alertname":"A","alertstate":"firing","node":"n1"},
             "values":[[100,"1"],[115,"1"],[130,"1"],[190,"1"],[205,"1"]]},
            {"metric":{"__name__":"ALERTS","alertname":"B","alertstate":"firing"},"values":[[7.5,"1"]]}]}}"#;
        let alerts = Alerts::from_series(text.as_bytes()).unwrap();
        let fired: Vec<(&str, Vec<i64>)> = alerts
            .rules
            .iter()
            .map(|rule| {
                let times = rule.firings.iter().map(|firing| firing.fired_at_ms);
                (rule.name.as_str(), times.collect())
            })
            .collect();
        assert_eq!(fired, [("A", vec![100_000, 190_000]), ("B", vec![7_500])]);
        let labels = &alerts.rules[0].firings[0].labels;
        let names: Vec<&String> = labels.keys().collect();
        assert_eq!(names, ["alertname", "node"]);
    }

    #[test]
    fn a_response_without_alerts_has_none_and_other_series_are_an_error() {
        let none = r#"{"data":{"result":[]}}"#;
        assert!(
            Alerts::from_series(none.as_bytes())
                .unwrap()
                .rules
                .is_empty()
        );
        let other = r#"{"data":{"result":[{"metric":{"__name__":"up"},"values":[[1,"1"]]}]}}"#;
        let error = Alerts::from_series(other.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("no label alertname"), "{error}");
    }
}
