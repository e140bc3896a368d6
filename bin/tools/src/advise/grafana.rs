//! Dashboards, library panels and alert rules of a running Grafana, through its HTTP API.

use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use varve_advise::needs::Dashboards;
use varve_client::Client;

/// Dashboards per page of a search.
const PAGE_LEN: usize = 1_000;
/// Maximum number of pages of a search.
const PAGES_MAX: usize = 100;

/// Adds the needs of all dashboards that the token can read.
///
/// # Errors
/// If Grafana cannot be reached or returns an error.
pub(super) fn read(client: &mut Client, dashboards: &mut Dashboards<'_>) -> Result<()> {
    for id in dashboard_ids(client)? {
        let path = format!("/api/dashboards/uid/{id}");
        let response = get(client, &path)?;
        let file: Rc<str> = format!("{}{path}", client.url()).into();
        dashboards.add(&file, response.get("dashboard").unwrap_or(&response));
    }
    // Older versions lack these endpoints, and the token may not be allowed to read them. Missing
    // library panels are then reported by the dashboards that refer to them.
    for path in [
        "/api/library-elements?kind=1&perPage=10000",
        "/api/v1/provisioning/alert-rules",
    ] {
        if let Ok(response) = get(client, path) {
            let file: Rc<str> = format!("{}{path}", client.url()).into();
            dashboards.add(&file, &response);
        }
    }
    Ok(())
}

fn dashboard_ids(client: &mut Client) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for page in 1..=PAGES_MAX {
        let found = get(
            client,
            &format!("/api/search?type=dash-db&limit={PAGE_LEN}&page={page}"),
        )?;
        let found = found
            .as_array()
            .context("Grafana's search returned no list")?;
        for dashboard in found {
            let Some(id) = dashboard.get("uid").and_then(Value::as_str) else {
                continue;
            };
            // The id becomes part of a path.
            let is_plain = id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            ensure!(is_plain, "invalid dashboard uid {id:?}");
            ids.push(id.to_owned());
        }
        if found.len() < PAGE_LEN {
            return Ok(ids);
        }
    }
    bail!("Grafana has more than {} dashboards", PAGES_MAX * PAGE_LEN);
}

fn get(client: &mut Client, path: &str) -> Result<Value> {
    let response = client.get(path)?;
    ensure!(
        response.is_success(),
        "Grafana returned {} for {path}: {}",
        response.status,
        response.text()
    );
    serde_json::from_slice(&response.body)
        .with_context(|| format!("parse Grafana's response of {path}"))
}
