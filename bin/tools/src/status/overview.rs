//! `varve status`: the state of a server on one screen.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use varve_advise::counted;
use varve_advise::usage::TOOLS_AGENT;
use varve_client::{Client, Response, UNAUTHORIZED};
use varve_system::quantity::{print_duration, print_rounded_size};

use crate::output::table;
use crate::server_args::ViewArgs;

/// A sender that has sent nothing for this long is silent, as on the page Senders.
const SILENT_MS: i64 = 120_000;
/// A sender is late if its newest sample was this old when it was stored, as on the page Senders.
const LAG_MS: i64 = 300_000;
/// Late senders, alerts and notifications that are named.
const NAMED_MAX: usize = 3;
/// The metrics of the overview.
const METRICS: &str = "varve_volume_(free|size)_bytes|varve_memory_(used|limit)_bytes|prometheus_tsdb_(wal_storage_size|storage_blocks)_bytes\
    |prometheus_notifications_(alertmanagers_discovered|dropped_total)";

/// Active series, which only Varve has.
const TEAMS: &str = "/api/v1/status/teams";
/// The status of a path that a server does not have.
const NOT_FOUND: u16 = 404;
/// Reasons of rejected requests that senders repeat.
const REPEATED: [&str; 3] = ["body_slow", "busy", "failed"];

/// A part of the overview: its name, the path of its data, and how they are printed.
type Part = (&'static str, &'static str, fn(&Value, i64) -> String);

const PARTS: [Part; 10] = [
    ("version", "/api/v1/status/buildinfo", version),
    ("process", "/api/v1/status/runtimeinfo", process),
    ("series", TEAMS, series),
    ("rejected", "/api/v1/status/rejects", rejected),
    ("resources", "/api/v1/status/self_metrics", resources),
    ("queries", "/api/v1/status/queries", queries),
    ("alerts", "/api/v1/alerts", alerts),
    (
        "alertmanagers",
        "/api/v1/status/self_metrics",
        alertmanagers,
    ),
    ("senders", "/api/v1/status/senders", senders),
    ("notifications", "/api/v1/notifications", notifications),
];

/// Runs `varve status` without a subcommand. A part that the token may not read, or that the server
/// does not have, shows the error.
///
/// # Errors
/// If the server cannot be reached, is not Varve, or accepts no request without other credentials.
pub(super) fn overview(args: &ViewArgs) -> Result<()> {
    // A mistyped part must not become a host that gets a token.
    if let Some(word) = args.server.given().filter(|url| url.is_word()) {
        bail!("{word} is neither a part of the status nor a server with a port");
    }
    let mut client = args.server.client()?;
    let ready = client.get("/-/ready")?.text();
    // One error is enough if no part can be read.
    let response = client.get(TEAMS)?;
    if [UNAUTHORIZED, NOT_FOUND].contains(&response.status) {
        data_of_varve(&client, TEAMS, &response)?;
    }
    let mut rows = Vec::new();
    for (idx, line) in ready.lines().enumerate() {
        let name = if idx == 0 { "state" } else { "" };
        rows.push([name.to_owned(), line.to_owned()]);
    }
    let mut all = Map::new();
    all.insert("state".to_owned(), ready.into());
    let now_ms = Timestamp::now().as_millisecond();
    for (name, path, print) in PARTS {
        let data = read(&mut client, path);
        let text = match &data {
            Ok(data) => print(data, now_ms),
            Err(error) => format!("{error:#}"),
        };
        rows.push([name.to_owned(), text]);
        let data = data.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        all.insert(name.to_owned(), data);
    }
    let url = client.url();
    args.output
        .print(|| format!("{url}\n{}", table(&[], &rows)), || &all);
    Ok(())
}

/// Returns the data of a response to a request for a path that each Varve has.
///
/// # Errors
/// If the server does not have it, and so is not Varve, or responds with an error.
pub(super) fn data_of_varve(client: &Client, path: &str, response: &Response) -> Result<Value> {
    ensure!(
        response.status != NOT_FOUND,
        "{} is not a Varve server: 404 for {path}",
        client.url()
    );
    client.data(path, response)
}

fn read(client: &mut Client, path: &str) -> Result<Value> {
    if path.ends_with("/self_metrics") {
        let pattern = varve_client::escape(METRICS);
        return client.get_data(&format!("{path}?metric_name_pattern={pattern}"));
    }
    client.get_data(path)
}

fn version(data: &Value, _now_ms: i64) -> String {
    let revision = text(&data["revision"]);
    format!("{revision}, API of Prometheus {}", text(&data["version"]))
}

fn process(data: &Value, now_ms: i64) -> String {
    let started = text(&data["startTime"]).parse::<Timestamp>();
    let up = match started {
        Ok(started) => age(now_ms - started.as_millisecond()),
        Err(_) => "an unknown time".to_owned(),
    };
    let reload = if data["reloadConfigSuccess"] == false {
        "; the last reload of the configuration failed"
    } else {
        ""
    };
    format!("up for {up} on {}{reload}", text(&data["hostname"]))
}

fn series(data: &Value, _now_ms: i64) -> String {
    let used = &data["all"]["use"];
    format!(
        "{} active, {} new/s; {} samples/s",
        short(number(&used["activeSeries"])),
        short(number(&used["newSeriesPerSecond"])),
        short(number(&used["samplesPerSecond"]))
    )
}

fn rejected(data: &Value, _now_ms: i64) -> String {
    let reasons = list(&data["rejects"]);
    if reasons.is_empty() {
        return "nothing since the start".to_owned();
    }
    let mut names = Vec::new();
    for reason in reasons {
        let name = text(&reason["reason"]);
        let remark = if REPEATED.contains(&name) {
            " (senders repeat the requests)"
        } else {
            ""
        };
        names.push(format!("{name}{remark}"));
    }
    format!(
        "samples {}, requests {} since the start: {}",
        short(total(reasons, "samples")),
        short(total(reasons, "requests")),
        named(names.iter().map(String::as_str))
    )
}

fn resources(data: &Value, _now_ms: i64) -> String {
    let sizes = Sizes(data);
    let mut parts = vec![
        format!(
            "memory {} of {}",
            sizes.print("varve_memory_used_bytes"),
            sizes.print("varve_memory_limit_bytes")
        ),
        format!(
            "blocks {}, log {}",
            sizes.print("prometheus_tsdb_storage_blocks_bytes"),
            sizes.print("prometheus_tsdb_wal_storage_size_bytes")
        ),
    ];
    if sizes.bytes("varve_volume_size_bytes") > 0.0 {
        parts.push(format!(
            "{} free of a volume of {}",
            sizes.print("varve_volume_free_bytes"),
            sizes.print("varve_volume_size_bytes")
        ));
    }
    parts.join("; ")
}

/// Returns the metrics of a name, as `self_metrics` lists them.
fn family<'d>(data: &'d Value, name: &str) -> &'d [Value] {
    let families = list(data).iter();
    let mut named = families.filter(|family| text(&family["name"]) == name);
    named.next().map_or(&[], |family| list(&family["metric"]))
}

/// Gauges of bytes, as `self_metrics` lists them.
struct Sizes<'d>(&'d Value);

impl Sizes<'_> {
    fn bytes(&self, name: &str) -> f64 {
        let metrics = family(self.0, name);
        metrics
            .first()
            .map_or(0.0, |metric| number(&metric["gauge"]["value"]))
    }

    fn print(&self, name: &str) -> String {
        print_rounded_size(self.bytes(name))
    }
}

fn queries(data: &Value, _now_ms: i64) -> String {
    // Those of Varve's own tools are left out. The request for this list is one of them.
    let active: Vec<_> = list(data)
        .iter()
        .filter(|query| !text(&query["userAgent"]).starts_with(TOOLS_AGENT))
        .collect();
    let ages = active.iter().map(|query| number(&query["ageSeconds"]));
    match ages.reduce(f64::max) {
        None => "none".to_owned(),
        Some(oldest) => format!("{} active, the oldest for {oldest:.1} s", active.len()),
    }
}

fn alerts(data: &Value, _now_ms: i64) -> String {
    let mut firing: BTreeMap<&str, usize> = BTreeMap::new();
    let mut n_pending = 0;
    for alert in list(&data["alerts"]) {
        match text(&alert["state"]) {
            "firing" => {
                *firing
                    .entry(text(&alert["labels"]["alertname"]))
                    .or_default() += 1
            }
            _ => n_pending += 1,
        }
    }
    let n_firing: usize = firing.values().sum();
    match n_firing {
        0 => format!("0 firing, {n_pending} pending"),
        _ => format!(
            "{n_firing} firing, {n_pending} pending: {}",
            named(firing.into_keys())
        ),
    }
}

fn alertmanagers(data: &Value, _now_ms: i64) -> String {
    let dropped: f64 = family(data, "prometheus_notifications_dropped_total")
        .iter()
        .map(|metric| number(&metric["counter"]["value"]))
        .sum();
    let discovered = family(data, "prometheus_notifications_alertmanagers_discovered");
    let n_discovered = discovered
        .first()
        .map_or(0.0, |metric| number(&metric["gauge"]["value"]));
    format!(
        "{}, {} dropped since the start",
        counted(n_discovered as usize, "Alertmanager"),
        counted(dropped as usize, "alert")
    )
}

fn senders(data: &Value, now_ms: i64) -> String {
    let mut n_failing = 0;
    let mut late = Vec::new();
    let senders = list(&data["senders"]);
    for sender in senders {
        let silent_ms = now_ms - sender["lastMs"].as_i64().unwrap_or(now_ms);
        let lag_ms = sender["lagMs"].as_i64().unwrap_or(0);
        n_failing += usize::from(number(&sender["failed"]) > 0.0);
        let name = text(&sender["name"]);
        if silent_ms > SILENT_MS {
            late.push(format!("{name} has been silent for {}", age(silent_ms)));
        } else if lag_ms > LAG_MS {
            late.push(format!("{name} is {} behind", age(lag_ms)));
        }
    }
    let mut line = format!(
        "{}, {} late, {n_failing} with rejected requests",
        counted(senders.len(), "sender"),
        late.len()
    );
    if !late.is_empty() {
        line.push_str(": ");
        line.push_str(&named(late.iter().map(String::as_str)));
    }
    line
}

fn notifications(data: &Value, _now_ms: i64) -> String {
    let all = list(data);
    if all.is_empty() {
        return "none".to_owned();
    }
    named(all.iter().map(|notification| text(&notification["text"])))
}

/// Returns the sum of the numbers of a key.
fn total(objects: &[Value], key: &str) -> f64 {
    objects.iter().map(|object| number(&object[key])).sum()
}

/// Returns the first [`NAMED_MAX`] names, and the number of the others.
fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let shown = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        n_more => format!("{shown} and {n_more} more"),
    }
}

/// Returns a time in milliseconds with its two largest units.
fn age(ms: i64) -> String {
    let seconds = u64::try_from(ms / 1000).unwrap_or(0);
    let unit = match seconds {
        0..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    print_duration(Duration::from_secs(seconds - seconds % unit))
}

/// Returns a number with three digits and a suffix from 10,000 on: `15.2M`.
fn short(value: f64) -> String {
    for (unit, suffix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= 10_000.0 && value >= unit {
            return format!("{:.1}{suffix}", value / unit);
        }
    }
    format!("{value:.0}")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_senders_firing_alerts_and_reasons_are_named() {
        let sender = |name: &str, last_ms: i64, lag_ms: i64| json!({"name": name, "lastMs": last_ms, "lagMs": lag_ms, "failed": 0});
        let data = json!({"senders": [
            sender("quick", 999_000, 5_000),
            sender("silent", 700_000, 0),
            sender("slow", 999_000, 400_000),
        ]});
        assert_eq!(
            senders(&data, 1_000_000),
            "3 senders, 2 late, 0 with rejected requests: silent has been silent for 5m, slow is 6m40s behind"
        );
        let alert =
            |name: &str, state: &str| json!({"labels": {"alertname": name}, "state": state});
        let data = json!({"alerts": [
            alert("A", "firing"), alert("A", "firing"), alert("B", "firing"), alert("C", "pending"),
        ]});
        assert_eq!(alerts(&data, 0), "3 firing, 1 pending: A, B");
        let reject = |reason: &str, samples: u64, requests: u64| json!({"reason": reason, "samples": samples, "requests": requests});
        let data = json!({"rejects": [reject("failed", 0, 17), reject("too_old", 4, 1)]});
        assert_eq!(
            rejected(&data, 0),
            "samples 4, requests 18 since the start: failed (senders repeat the requests), too_old"
        );
        assert_eq!(named(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }

    #[test]
    fn times_and_numbers_are_short() {
        for (ms, expect) in [
            (0, "0s"),
            (59_999, "59s"),
            (3_599_000, "59m59s"),
            (7_265_000, "2h1m"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(age(ms), expect);
        }
        for (value, expect) in [
            (0.0, "0"),
            (9_999.0, "9999"),
            (15_240_000.0, "15.2M"),
            (498_200.0, "498.2k"),
        ] {
            assert_eq!(short(value), expect);
        }
    }
}
