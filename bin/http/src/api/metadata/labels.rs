//! /api/v1/labels and /api/v1/label/{name}/values.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use varve_advise::usage::Requester;
use varve_query::usage::LabelSet;
use varve_tsdb::labels::StringSet;
use varve_tsdb::{Matcher, TimeRange};

use crate::error::ApiError;
use crate::json;
use crate::params::{Form, Verbatim, parse_selectors, unescape_label_name};
use crate::requester::RequestedBy;
use crate::serving::run::{RequestClass, TRUNCATED, Work, run_shared};
use crate::serving::state::HttpState;

/// GET and POST /api/v1/labels.
pub(crate) async fn names(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result<Response, ApiError> {
    // The request uses the names of labels, not their values.
    let used = Used { who, labels: LabelSet::none() };
    respond(&state, &form, used, |work, matchers, range| work.store.db.label_names(&work.ctx, matchers, range)).await
}

/// GET /api/v1/label/{name}/values.
pub(crate) async fn values(
    State(state): State<HttpState>,
    name: Result<Path<String>, PathRejection>,
    RequestedBy(who): RequestedBy,
    uri: Uri,
    form: Form,
) -> Result<Response, ApiError> {
    let Ok(Path(name)) = name else {
        return Err(ApiError::bad_data(format!("invalid label name: {}", quote(uri.path()))));
    };
    let name = unescape_label_name(&name);
    if name.is_empty() {
        return Err(ApiError::bad_data("invalid label name: \"\""));
    }
    let used = Used { who, labels: LabelSet::Only([name.clone()].into()) };
    respond(&state, &form, used, move |work, matchers, range| {
        work.store.db.label_values(&work.ctx, &name, matchers, range)
    })
    .await
}

/// Returns the path element of the label name in quotes, with the escapes that Go uses for invalid UTF-8.
fn quote(path: &str) -> String {
    let element = path.trim_end_matches("/values").rsplit('/').next().unwrap_or_default();
    format!("\"{}\"", element.replace('%', "\\x").to_ascii_lowercase())
}

/// Responds with the union of the results of `find` for all selectors.
async fn respond(
    state: &HttpState,
    form: &Form,
    used: Used,
    find: impl Fn(&Work, &[Matcher], TimeRange) -> varve_tsdb::Result<StringSet> + Send + 'static,
) -> Result<Response, ApiError> {
    let request = Request::read(form)?;
    let (timeout, parameters) = (form.timeout()?, format!("{used:?} {request:?}"));
    run_shared(state, RequestClass::Metadata, timeout, parameters, move |work| request.respond(work, &used, find)).await
}

/// The requester, and the labels that it uses.
#[derive(Debug)]
struct Used {
    who: Requester,
    labels: LabelSet,
}

#[derive(Debug)]
struct Request {
    selectors: Vec<Verbatim>,
    range: TimeRange,
    limit: usize,
}

impl Request {
    fn read(form: &Form) -> Result<Self, ApiError> {
        let limit = form.limit()?.unwrap_or(usize::MAX);
        let range = form.time_range()?;
        Ok(Self { selectors: form.selectors(), range, limit })
    }

    fn respond(
        &self,
        work: &mut Work,
        used: &Used,
        find: impl Fn(&Work, &[Matcher], TimeRange) -> varve_tsdb::Result<StringSet>,
    ) -> Result<(), ApiError> {
        let selectors = parse_selectors(&work.ctx, &self.selectors, ApiError::bad_data)?;
        work.store.note_metadata(&work.ctx, &used.who, &selectors, &used.labels);
        let mut selectors = selectors.into_iter();
        let mut texts = find(work, &selectors.next().unwrap_or_default(), self.range)?;
        for matchers in selectors {
            texts.extend(&find(work, &matchers, self.range)?)?;
        }
        work.open();
        work.array(texts.iter().take(self.limit), |out, text| json::write_html_string(out, text.as_bytes()))?;
        let warning = (texts.len() > self.limit).then(|| TRUNCATED.to_owned());
        work.close(&Vec::from_iter(warning), &[])
    }
}
