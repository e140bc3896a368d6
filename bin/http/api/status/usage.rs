//! /api/v1/status/usage: what was asked for, by whom, and when last; and who a request comes from.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::App;
use crate::http::error::ApiError;
use crate::http::params::Form;
use crate::http::serving::run::{Class, Work, run};
use crate::server::usage::{Entry, Requester};

/// Bytes of a header that are kept.
const HEADER_SIZE_MAX: usize = 128;

impl FromRequestParts<Arc<App>> for Requester {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Infallible> {
        let header = |name: &str| -> Box<str> {
            let bytes = parts.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(HEADER_SIZE_MAX)]);
            // A cut character becomes a longer one.
            text.chars().take_while(|c| *c != char::REPLACEMENT_CHARACTER).collect::<String>().into()
        };
        Ok(Self {
            user_agent: header("user-agent"),
            dashboard: header("x-dashboard-uid"),
            panel: header("x-panel-id"),
            rule: header("x-rule-uid"),
        })
    }
}

/// GET /api/v1/status/usage: what was asked for last comes first; `metric` chooses one, `limit` bounds each list.
pub(crate) async fn usage(State(app): State<Arc<App>>, form: Form) -> Response {
    let read = form.limit().and_then(|limit| Ok((limit.unwrap_or(usize::MAX), form.timeout()?)));
    match read {
        Ok((limit, timeout)) => {
            run(&app, Class::Metadata, timeout, move |work| answer(work, form.first("metric"), limit)).await
        }
        Err(refused) => refused.into_response(),
    }
}

fn answer(work: &mut Work, metric: &str, limit: usize) -> Result<(), ApiError> {
    let mut record = work.store.usage.snapshot();
    let mut charge = work.ctx.charge();
    charge.grow(record.metrics.iter().chain(&record.selectors).map(Entry::size).sum())?;
    if !metric.is_empty() {
        record.metrics.retain(|entry| &*entry.text == metric);
        record.selectors.clear();
    }
    for entries in [&mut record.metrics, &mut record.selectors] {
        entries.sort_by(|a, b| b.last_ms.cmp(&a.last_ms).then_with(|| a.text.cmp(&b.text)));
        entries.truncate(limit);
    }
    work.open();
    let head = format!("{{\"sinceMs\":{},\"forgotten\":{},\"metrics\":", record.since_ms, record.n_forgotten);
    work.out.buffer().extend_from_slice(head.as_bytes());
    work.array(&record.metrics, |out, entry| write(out, "metric", entry))?;
    work.out.buffer().extend_from_slice(b",\"selectors\":");
    work.array(&record.selectors, |out, entry| write(out, "selector", entry))?;
    work.out.buffer().push(b'}');
    work.close(&[], &[])
}

fn write(out: &mut Vec<u8>, key: &str, entry: &Entry) {
    let requesters: Vec<_> = entry
        .askers
        .iter()
        .map(|asker| {
            let Requester { user_agent, dashboard, panel, rule } = &*asker.who;
            json!({
                "userAgent": user_agent, "dashboard": dashboard, "panel": panel, "rule": rule,
                "queries": asker.n_queries, "lastMs": asker.last_ms,
            })
        })
        .collect();
    let json: Value = json!({
        key: entry.text, "queries": entry.n_queries, "lastMs": entry.last_ms, "allLabels": entry.all_labels,
        "matchedLabels": entry.matched, "groupedLabels": entry.grouped, "requesters": requesters,
    });
    out.extend_from_slice(json.to_string().as_bytes());
}
