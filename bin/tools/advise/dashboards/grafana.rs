//! Dashboards, library panels and alert rules of a running Grafana, through its HTTP API.

use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Dashboards;
use crate::client::Client;

/// Dashboards that are asked for in one page of a search.
const PAGE_LEN: usize = 1_000;
/// Pages of a search.
const PAGES_MAX: usize = 100;

/// Adds what the dashboards that a token may see need.
///
/// # Errors
/// If Grafana does not answer or refuses.
pub(in super::super) fn read_grafana(client: &mut Client, dashboards: &mut Dashboards<'_>) -> Result<usize> {
    let ids = dashboard_ids(client)?;
    for id in &ids {
        let path = format!("/api/dashboards/uid/{id}");
        let answer = get(client, &path)?;
        let file: Rc<str> = format!("{}{path}", client.url()).into();
        dashboards.add(&file, answer.get("dashboard").unwrap_or(&answer));
    }
    // Older versions lack these, and a token may be without the right to see them: what is missing is then told of by the
    // dashboards that refer to it.
    for path in ["/api/library-elements?kind=1&perPage=10000", "/api/v1/provisioning/alert-rules"] {
        if let Ok(answer) = get(client, path) {
            let file: Rc<str> = format!("{}{path}", client.url()).into();
            dashboards.add(&file, &answer);
        }
    }
    Ok(ids.len())
}

fn dashboard_ids(client: &mut Client) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for page in 1..=PAGES_MAX {
        let found = get(client, &format!("/api/search?type=dash-db&limit={PAGE_LEN}&page={page}"))?;
        let found = found.as_array().context("Grafana's search gives no list")?;
        let id = |found: &Value| found.get("uid").and_then(Value::as_str).map(str::to_owned);
        for id in found.iter().filter_map(id) {
            // It becomes a part of a path.
            let is_plain = id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            ensure!(is_plain, "Grafana names a dashboard {id:?}");
            ids.push(id);
        }
        if found.len() < PAGE_LEN {
            return Ok(ids);
        }
    }
    bail!("Grafana has more than {} dashboards", PAGES_MAX * PAGE_LEN);
}

fn get(client: &mut Client, path: &str) -> Result<Value> {
    let answer = client.get(path)?;
    ensure!(answer.is_success(), "Grafana answers {} to {path}: {}", answer.status, answer.text());
    serde_json::from_slice(&answer.body).with_context(|| format!("read Grafana's answer to {path}"))
}
