//! /api/v1/format_query and /api/v1/parse_query.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_server::requests::record::RequestRecord;

use crate::error::Result;
use crate::json;
use crate::params::Form;
use crate::serving::run::{RequestClass, job_fn, run};
use crate::serving::state::HttpState;

/// GET and POST /api/v1/format_query.
pub(crate) async fn format(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let features = state.app.settings.query.features;
    let job = job_fn(move |work| {
        let (expr, _expr_charge) =
            varve_promql::parse_within(&work.ctx, form.first("query"), &features)?;
        let (text, _text_charge) = varve_promql::prettify_within(&work.ctx, &expr)?;
        work.respond(|work| {
            json::write_html_string(work.out.buffer(), text.as_bytes());
            Ok(())
        })
    });
    run(&state, &record, RequestClass::Query, None, job).await
}

/// GET and POST /api/v1/parse_query.
pub(crate) async fn parse(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let features = state.app.settings.query.features;
    let job = job_fn(move |work| {
        let (expr, _expr_charge) =
            varve_promql::parse_within(&work.ctx, form.first("query"), &features)?;
        let (tree, _tree_charge) = varve_promql::json::to_json_within(&work.ctx, &expr)?;
        work.respond_encoded(&tree)
    });
    run(&state, &record, RequestClass::Query, None, job).await
}
