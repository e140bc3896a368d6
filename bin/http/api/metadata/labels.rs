//! /api/v1/labels and /api/v1/label/{name}/values.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use varve_query::usage::LabelSet;
use varve_tsdb::{Matcher, Texts, TimeRange};

use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json;
use crate::http::params::{Form, parse_selectors, unescape_label_name};
use crate::http::serving::run::{Class, TRUNCATED, Work, run_shared};
use crate::server::usage::Requester;

/// GET and POST /api/v1/labels.
pub(crate) async fn names(State(app): State<Arc<App>>, who: Requester, form: Form) -> Response {
    // That a label is there is asked of a metric, not what its values are.
    let used = Used { who, labels: LabelSet::none() };
    answer(&app, &form, used, |work, matchers, range| work.store.db.label_names(&work.ctx, matchers, range)).await
}

/// GET /api/v1/label/{name}/values.
pub(crate) async fn values(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    who: Requester,
    uri: Uri,
    form: Form,
) -> Response {
    let Ok(Path(name)) = name else {
        return ApiError::bad_data(format!("invalid label name: {}", quote(uri.path()))).into_response();
    };
    let name = unescape_label_name(&name);
    if name.is_empty() {
        return ApiError::bad_data("invalid label name: \"\"").into_response();
    }
    let used = Used { who, labels: LabelSet::Only([name.clone()].into()) };
    answer(&app, &form, used, move |work, matchers, range| {
        work.store.db.label_values(&work.ctx, &name, matchers, range)
    })
    .await
}

/// Returns the element of a path that a label name stands in, in quotes, as Go shows bytes that are no text.
fn quote(path: &str) -> String {
    let element = path.trim_end_matches("/values").rsplit('/').next().unwrap_or_default();
    format!("\"{}\"", element.replace('%', "\\x").to_ascii_lowercase())
}

/// Answers with the union over all selectors of what `find` gives; `of` is the label that is asked about.
async fn answer(
    app: &Arc<App>,
    form: &Form,
    used: Used,
    find: impl Fn(&Work, &[Matcher], TimeRange) -> varve_tsdb::Result<Texts> + Send + 'static,
) -> Response {
    let call = match Call::read(form) {
        Ok(call) => call,
        Err(refused) => return refused.into_response(),
    };
    match form.timeout() {
        Ok(timeout) => {
            let asked = format!("{used:?} {call:?}");
            run_shared(app, Class::Metadata, timeout, asked, move |work| call.answer(work, &used, find)).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Who uses which labels by a call.
#[derive(Debug)]
struct Used {
    who: Requester,
    labels: LabelSet,
}

/// The parameters of a call.
#[derive(Debug)]
struct Call {
    selectors: Vec<String>,
    range: TimeRange,
    limit: usize,
}

impl Call {
    fn read(form: &Form) -> Result<Self, ApiError> {
        let limit = form.limit()?.unwrap_or(usize::MAX);
        let range = form.time_range()?;
        Ok(Self { selectors: form.all("match[]").map(str::to_owned).collect(), range, limit })
    }

    fn answer(
        &self,
        work: &mut Work,
        used: &Used,
        find: impl Fn(&Work, &[Matcher], TimeRange) -> varve_tsdb::Result<Texts>,
    ) -> Result<(), ApiError> {
        let selectors = parse_selectors(&self.selectors).map_err(ApiError::bad_data)?;
        work.store.note_selectors(&used.who, &selectors, &used.labels);
        let mut selectors = selectors.into_iter();
        let mut texts = find(work, &selectors.next().unwrap_or_default(), self.range)?;
        for matchers in selectors {
            texts.extend(&find(work, &matchers, self.range)?)?;
        }
        work.open();
        work.array(texts.iter().take(self.limit), |out, text| json::write_html_string(out, text.as_bytes()))?;
        let truncated = (texts.len() > self.limit).then(|| TRUNCATED.to_owned());
        work.close(&Vec::from_iter(truncated), &[])
    }
}
