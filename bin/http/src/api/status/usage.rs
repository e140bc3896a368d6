//! /api/v1/status/usage: which metrics and selectors were queried, by whom, and when last.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use serde_json::{Value, json};
use varve_advise::needs::is_exploration;
use varve_advise::usage::{Entry, Requester};
use varve_server::requests::record::RequestRecord;

use crate::error::Result;
use crate::params::Form;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;

/// GET /api/v1/status/usage: the most recently used first. `metric` selects one metric, `limit`
/// bounds each list. `count_exploration=true` lists exploration among `selectors`.
pub(crate) async fn usage(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let limit = form.limit()?.unwrap_or(usize::MAX);
    let timeout = form.timeout()?;
    let count_exploration = form.boolean("count_exploration")?;
    let job = job_fn(move |work| respond(work, form.first("metric"), limit, count_exploration));
    run(&state, &record, RequestClass::Metadata, timeout, job).await
}

fn respond(work: &mut Work, metric: &str, limit: usize, count_exploration: bool) -> Result<()> {
    let mut charge = work.ctx.charge();
    let mut record = work.store.usage.snapshot(&mut charge)?;
    if !metric.is_empty() {
        record.metrics.retain(|used| &*used.text == metric);
        record.selectors.clear();
    }
    let mut exploration = Vec::new();
    if !count_exploration {
        exploration = record
            .selectors
            .extract_if(.., |used| is_exploration(&used.text))
            .collect();
    }
    for entries in [&mut record.metrics, &mut record.selectors, &mut exploration] {
        entries.sort_by(|a, b| b.last_ms.cmp(&a.last_ms).then_with(|| a.text.cmp(&b.text)));
        entries.truncate(limit);
    }
    work.respond(|work| {
        let head = format!(
            "{{\"sinceMs\":{},\"evicted\":{},\"metrics\":",
            record.since_ms, record.n_evicted
        );
        work.out.buffer().extend_from_slice(head.as_bytes());
        work.array(&record.metrics, |out, metric| write(out, "metric", metric))?;
        work.out.buffer().extend_from_slice(b",\"selectors\":");
        work.array(&record.selectors, |out, selector| {
            write(out, "selector", selector)
        })?;
        work.out.buffer().extend_from_slice(b",\"exploration\":");
        work.array(&exploration, |out, selector| {
            write(out, "selector", selector)
        })?;
        work.out.buffer().push(b'}');
        Ok(())
    })
}

fn write(out: &mut Vec<u8>, key: &str, used: &Entry) {
    let requesters: Vec<_> = used
        .requesters
        .iter()
        .map(|requester| {
            let Requester {
                user_agent,
                dashboard,
                panel,
                rule,
            } = &*requester.who;
            json!({
                "userAgent": user_agent, "dashboard": dashboard, "panel": panel, "rule": rule,
                "queries": requester.n_queries, "lastMs": requester.last_ms,
            })
        })
        .collect();
    let json: Value = json!({
        key: used.text, "queries": used.n_queries, "lastMs": used.last_ms, "allLabels": used.all_labels,
        "matchedLabels": used.matched, "groupedLabels": used.grouped, "requesters": requesters,
    });
    out.extend_from_slice(json.to_string().as_bytes());
}
