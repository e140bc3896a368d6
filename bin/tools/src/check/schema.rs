//! The keys of a Prometheus configuration, and what their values may be: `prometheus-3.16.yaml`,
//! which explains itself.
//!
//! [`check`] rejects unknown keys and values of a wrong kind, at any depth. It lists the parts that
//! it has not looked at: service discoveries and the authentication of cloud providers.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde_yaml_ng::{Mapping, Value};
use varve_system::quantity::{parse_duration, parse_size};

use super::config::{boolean, duration_text};

const SCHEMA: &str = include_str!("prometheus-3.16.yaml");
/// The suffix of keys of service discoveries, and the key of the schema that lists them.
const DISCOVERIES: &str = "_sd_configs";

/// Checks a file and returns the parts that were not looked at.
///
/// # Errors
/// An unknown key, or a value of a wrong kind, with its location.
///
/// # Panics
/// If the schema is not valid YAML.
pub(super) fn check(file: &Value) -> Result<BTreeSet<String>> {
    let mut schema: Value = serde_yaml_ng::from_str(SCHEMA).expect("the schema is YAML");
    schema.apply_merge().expect("the schema merges mappings");
    let mut unchecked = BTreeSet::new();
    check_value(file, &schema["file"], &mut unchecked, "")?;
    Ok(unchecked)
}

fn check_value(
    value: &Value,
    kind: &Value,
    unchecked: &mut BTreeSet<String>,
    at: &str,
) -> Result<()> {
    match kind {
        // As in Go, a key without a value has its default.
        _ if value.is_null() => {}
        Value::Mapping(keys) => {
            for (key, value) in value.as_mapping().context("expected a mapping")? {
                let key = text_of(key);
                let kind = kind_of(keys, &key).with_context(|| format!("unknown key {key}"))?;
                let at = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                check_value(value, &kind, unchecked, &at).context(key)?;
            }
        }
        Value::Sequence(kinds) => {
            for (value, i) in value
                .as_sequence()
                .context("expected a list")?
                .iter()
                .zip(1..)
            {
                check_value(value, &kinds[0], unchecked, at)
                    .with_context(|| format!("entry {i}"))?;
            }
        }
        kind => match kind.as_str().unwrap_or_default() {
            "any" => {}
            "unchecked" => drop(unchecked.insert(at.to_owned())),
            scalar => check_scalar(value, scalar)?,
        },
    }
    Ok(())
}

/// Returns the kind of a key.
fn kind_of(keys: &Mapping, key: &str) -> Option<Value> {
    if let Some(kind) = keys.get(key).filter(|_| key != DISCOVERIES) {
        return Some(kind.clone());
    }
    let name = Value::from(key.strip_suffix(DISCOVERIES)?);
    keys.get(DISCOVERIES)?
        .as_sequence()?
        .contains(&name)
        .then(|| Value::from("unchecked"))
}

fn check_scalar(value: &Value, kind: &str) -> Result<()> {
    let is_scalar = |value: &Value| !value.is_mapping() && !value.is_sequence();
    match kind {
        "text" => ensure!(is_scalar(value), "expected a string"),
        "texts" => {
            let is_valid = value
                .as_mapping()
                .is_some_and(|texts| texts.values().all(is_scalar));
            ensure!(is_valid, "expected a mapping of strings");
        }
        "bool" => ensure!(boolean(value).is_some(), "expected true or false"),
        "lists" => {
            let is_list = |value: &Value| {
                value.is_null()
                    || value
                        .as_sequence()
                        .is_some_and(|texts| texts.iter().all(is_scalar))
            };
            let is_valid = value
                .as_mapping()
                .is_some_and(|lists| lists.values().all(is_list));
            ensure!(is_valid, "expected a mapping of lists of strings");
        }
        "size" => {
            let text = value.as_str().unwrap_or_default();
            let is_valid = parse_size(text).is_ok() && text.ends_with('B');
            ensure!(
                is_valid || value.as_u64() == Some(0),
                "expected a size with a unit, such as 10MB"
            );
        }
        "number" => ensure!(value.is_number(), "expected a number"),
        "count" => ensure!(
            value.as_f64().is_some_and(|n| n >= 0.0),
            "expected a number that is not negative"
        ),
        "duration" => {
            let text = duration_text(value).context("expected a duration")?;
            parse_duration(&text).map_err(anyhow::Error::msg)?;
        }
        known => {
            let text = text_of(value);
            if !known.split('|').any(|known| known == text) {
                bail!(
                    "unknown value {text:?}, known are: {}",
                    known.replace('|', ", ")
                );
            }
        }
    }
    Ok(())
}

fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| format!("{value:?}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Vec<String>> {
        super::check(&serde_yaml_ng::from_str(text).unwrap()).map(Vec::from_iter)
    }

    #[test]
    fn unknown_keys_and_values_are_rejected_at_any_depth() {
        for (text, expect) in [
            ("scrapes: []", "unknown key scrapes"),
            (
                "global: {scrape_intervall: 1m}",
                "global: unknown key scrape_intervall",
            ),
            (
                "remote_write: [{url: x, protobuf_message: nonsense}]",
                "remote_write: entry 1: protobuf_message: unknown value \"nonsense\"",
            ),
            (
                "remote_write: [{url: x, queue_config: {max_shard: 1}}]",
                "remote_write: entry 1: queue_config: unknown key max_shard",
            ),
            (
                "remote_write: [{url: x, queue_config: {max_shards: many}}]",
                "queue_config: max_shards: expected a number",
            ),
            (
                "remote_write: [{url: x, tls_config: {insecure: true}}]",
                "tls_config: unknown key insecure",
            ),
            (
                "scrape_configs: [{job_name: a}, {job_name: b, static_configs: [{target: [c]}]}]",
                "entry 2: static_configs: entry 1: unknown key target",
            ),
            (
                "scrape_configs: [{job_name: a, sample_limit: -1}]",
                "sample_limit: expected a number that is not",
            ),
            (
                "scrape_configs: [{body_size_limit: 100}]",
                "body_size_limit: expected a size with a unit",
            ),
            (
                "storage: {tsdb: {retention: {size: -5}}}",
                "retention: size: expected a size with a unit",
            ),
            (
                "scrape_configs: [{relabel_configs: [{name: a}]}]",
                "relabel_configs: entry 1: unknown key name",
            ),
            (
                "scrape_configs: [{job_name: a, params: {a: b}}]",
                "params: expected a mapping of lists of strings",
            ),
            (
                "scrape_configs: [{job_name: a, nonsense_sd_configs: []}]",
                "unknown key nonsense_sd_configs",
            ),
            (
                "remote_read: [{url: x, dns_sd_configs: []}]",
                "unknown key dns_sd_configs",
            ),
            (
                "alerting: {alertmanagers: [{api_version: v1}]}",
                "api_version: unknown value \"v1\"",
            ),
            (
                "tracing: {sampling_fraction: x}",
                "tracing: sampling_fraction: expected a number",
            ),
            (
                "runtime: {log_level: loud}",
                "runtime: log_level: unknown value",
            ),
            (
                "storage: {tsdb: {retention: {time: x}}}",
                "retention: time: not a valid duration",
            ),
            ("scrape_configs: {}", "scrape_configs: expected a list"),
        ] {
            let error = format!("{:#}", check(text).unwrap_err());
            assert!(error.contains(expect), "{error}, expected {expect}");
        }
    }

    #[test]
    fn parts_that_are_not_looked_at_are_listed() {
        let text = "scrape_configs: [{job_name: a, kubernetes_sd_configs: [{x: 1}], static_configs: [{targets: [b:1]}], tls_config: }]\n\
                    remote_write: [{url: x, sigv4: {}, protobuf_message: io.prometheus.write.v2.Request, send_exemplars: on, proxy_url: y}]\n\
                    otlp: {}";
        assert_eq!(
            check(text).unwrap(),
            ["remote_write.sigv4", "scrape_configs.kubernetes_sd_configs"]
        );
    }
}
