//! `varve-bench verify`: reads series back through the query API and compares every sample, bit for
//! bit.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use varve_model::labels::METRIC_NAME;
use varve_model::staleness::is_stale_nan;
use varve_model::{Labels, Sample};

use crate::args::VerifyArgs;
use crate::client::{Client, escape};
use crate::fleet::{Fleet, SeriesId};
use crate::output::print;

/// Verifies a fleet and prints the number of samples.
///
/// # Errors
/// If the server cannot be queried, or at the first difference.
pub(crate) fn verify(args: &VerifyArgs) -> Result<()> {
    let fleet = Fleet::new(args.fleet.options(args.start));
    let n_rounds = args.fleet.n_rounds();
    let client = Client::new(&args.url);
    let mut n_series = 0u64;
    let mut n_samples = 0u64;
    for place in (0..fleet.n_places()).step_by(args.every as usize) {
        let last = fleet.series_at(place, n_rounds - 1).generation;
        for generation in 0..=last {
            let series = SeriesId { place, generation };
            let expect = samples(&fleet, series, n_rounds);
            if !expect.is_empty() {
                let labels = fleet.labels(series);
                check(&client, &fleet, &labels, n_rounds, &expect)
                    .with_context(|| format!("verify {labels}"))?;
                n_series += 1;
                n_samples += expect.len() as u64;
            }
        }
    }
    print(format_args!(
        "verified {n_samples} samples of {n_series} series, bit for bit\n"
    ))
}

/// Returns the samples of a series without staleness markers, as a query does.
fn samples(fleet: &Fleet, series: SeriesId, n_rounds: i64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for round in 0..n_rounds {
        match fleet.value(series, round) {
            Some(value) if !is_stale_nan(value) => samples.push(Sample {
                timestamp_ms: fleet.timestamp_ms(series.place, round),
                value,
            }),
            _ => {}
        }
    }
    samples
}

fn check(
    client: &Client,
    fleet: &Fleet,
    labels: &Labels,
    n_rounds: i64,
    expect: &[Sample],
) -> Result<()> {
    let options = fleet.options();
    // Ranges exclude their left end.
    let range_ms = (n_rounds + 1) * options.interval_ms;
    let end_ms = options.start_ms + n_rounds * options.interval_ms;
    let query = format!("{}[{range_ms}ms]", selector(labels));
    let path = format!(
        "/api/v1/query?query={}&time={}",
        escape(&query),
        end_ms as f64 / 1e3
    );
    let response = client.get(&path)?;
    ensure!(
        response.is_success(),
        "the server returned {}: {}",
        response.status,
        response.text()
    );
    let response: Value = serde_json::from_slice(&response.body).context("parse the response")?;
    let result = response["data"]["result"]
        .as_array()
        .context("find the result in the response")?;
    // More than one series means that samples are stored under other labels.
    let [series] = &result[..] else {
        bail!("expected 1 series, found {}", result.len())
    };
    let stored = series["values"]
        .as_array()
        .context("find the values in the response")?;
    ensure!(
        stored.len() == expect.len(),
        "found {} samples, expected {}",
        stored.len(),
        expect.len()
    );
    stored
        .iter()
        .zip(expect)
        .try_for_each(|(stored, expect)| compare(stored, expect))
}

fn compare(stored: &Value, expect: &Sample) -> Result<()> {
    let timestamp_ms = stored[0]
        .as_f64()
        .map(|seconds| (seconds * 1e3).round() as i64);
    let value = stored[1].as_str().and_then(|text| text.parse::<f64>().ok());
    let equal = timestamp_ms == Some(expect.timestamp_ms)
        && value.map(f64::to_bits) == Some(expect.value.to_bits());
    ensure!(
        equal,
        "{stored} instead of {:?} at {} ms",
        expect.value,
        expect.timestamp_ms
    );
    Ok(())
}

fn selector(labels: &Labels) -> String {
    let matchers = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect::<Vec<_>>();
    debug_assert!(
        labels.get(METRIC_NAME).is_some(),
        "every series of the fleet has a name"
    );
    format!("{{{}}}", matchers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_every_label() {
        let labels = Labels::from_pairs([("__name__", "a"), ("rule", "-s 1 \"x\"")]).unwrap();
        assert_eq!(selector(&labels), r#"{__name__="a",rule="-s 1 \"x\""}"#);
    }

    #[test]
    fn values_are_compared_bit_for_bit() {
        let expect = Sample {
            timestamp_ms: 1_760_000_000_123,
            value: 0.1 + 0.2,
        };
        let stored = |value: &str| serde_json::json!([1_760_000_000.123, value]);
        assert!(compare(&stored("0.30000000000000004"), &expect).is_ok());
        assert!(compare(&stored("0.3"), &expect).is_err());
    }
}
