//! /api/v1/labels and /api/v1/label/{name}/values.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use varve_advise::usage::Requester;
use varve_model::{Matcher, StringSet};
use varve_query::Engine;
use varve_query::usage::LabelSet;
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_tsdb::{Db, ReadContext};

use super::request::Request;
use crate::error::{ApiError, Result};
use crate::json;
use crate::params::{Form, parse_selector, parse_selectors, unescape_label_name};
use crate::requester::RequestedBy;
use crate::serving::run::{Job, RequestClass, TRUNCATED, Work, run_shared};
use crate::serving::state::HttpState;

/// Maximum number of strings and series that a listing visits on the thread of its connection.
const SMALL_COST_MAX: u64 = 1000;

/// Bytes of strings that are written between two steps of the response.
const STEP_SIZE: usize = 4 << 10;

/// GET and POST /api/v1/labels.
pub(crate) async fn names(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    // The request uses the names of labels, not their values.
    respond(&state, &record, &form, who, LabelSet::none(), None).await
}

/// GET /api/v1/label/{name}/values.
pub(crate) async fn values(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    name: Result<Path<String>, PathRejection>,
    RequestedBy(who): RequestedBy,
    uri: Uri,
    form: Form,
) -> Result {
    let Ok(Path(name)) = name else {
        return Err(ApiError::bad_data(format!(
            "invalid label name: {}",
            quote(uri.path())
        )));
    };
    let name = unescape_label_name(&name);
    if name.is_empty() {
        return Err(ApiError::bad_data("invalid label name: \"\""));
    }
    let used = LabelSet::Only([name.clone()].into());
    respond(&state, &record, &form, who, used, Some(name)).await
}

/// Returns the path element of the label name in quotes, with the escapes that Go uses for invalid
/// UTF-8.
fn quote(path: &str) -> String {
    let element = path
        .trim_end_matches("/values")
        .rsplit('/')
        .next()
        .unwrap_or_default();
    format!("\"{}\"", element.replace('%', "\\x").to_ascii_lowercase())
}

/// Responds with the values of the label `name`, or with the names of labels.
async fn respond(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    form: &Form,
    who: Requester,
    used: LabelSet,
    name: Option<String>,
) -> Result {
    let listing = Arc::new(Listing {
        request: Request::read(form, who, form.selectors())?,
        used,
        name,
    });
    let timeout = form.timeout()?;
    let parameters = Arc::clone(&listing);
    let job = Box::new(ListingJob(listing));
    run_shared(
        state,
        record,
        RequestClass::Metadata,
        timeout,
        parameters,
        job,
    )
    .await
}

/// The listing of the values of a label, or of the names of labels.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Listing {
    request: Request,
    /// The labels that the requester uses.
    used: LabelSet,
    name: Option<String>,
}

struct ListingJob(Arc<Listing>);

impl Listing {
    fn find(&self, work: &Work, matchers: &[Matcher]) -> varve_tsdb::Result<StringSet> {
        let db = &work.store.db;
        let Request { range, limit, .. } = self.request;
        // One more shows that the limit truncates the result.
        let n_max = limit.saturating_add(1);
        match &self.name {
            None => db.first_label_names(&work.ctx, matchers, range, n_max),
            Some(name) => db.first_label_values(&work.ctx, name, matchers, range, n_max),
        }
    }

    /// Returns an upper bound for the strings and series to visit. Returns `None` if the listing
    /// reads a block, has to wait, or has selectors that are long, many or invalid.
    fn cost(&self, ctx: &ReadContext, db: &Db) -> Option<u64> {
        let Request {
            selectors, range, ..
        } = &self.request;
        let matchers = match &selectors[..] {
            [] => Vec::new(),
            // An error is reported when the request runs.
            [selector] if Engine::is_small_text(selector) => {
                parse_selector(ctx, selector, ApiError::bad_data).ok()?
            }
            _ => return None,
        };
        db.label_strings_in_heads_max(ctx, self.name.as_deref(), &matchers, *range)
    }
}

impl Job for ListingJob {
    fn is_small(&mut self, ctx: &ReadContext, store: &Store) -> bool {
        self.0
            .cost(ctx, &store.db)
            .is_some_and(|cost| cost <= SMALL_COST_MAX)
    }

    /// Responds with the union of the results for all selectors.
    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        let listing = &*self.0;
        let Request {
            who,
            selectors,
            limit,
            ..
        } = &listing.request;
        let selectors = parse_selectors(&work.ctx, selectors, ApiError::bad_data)?;
        work.store
            .note_metadata(&work.ctx, who, &selectors, &listing.used);

        let mut selectors = selectors.into_iter();
        let mut texts = listing.find(work, &selectors.next().unwrap_or_default())?;
        for matchers in selectors {
            texts.extend(&listing.find(work, &matchers)?)?;
        }

        work.open();
        write_strings(work, texts.iter().take(*limit))?;
        let mut warnings = Vec::new();
        if texts.len() > *limit {
            warnings.push(TRUNCATED.to_owned());
        }
        work.close(&warnings, &[])
    }
}

/// Writes an array of strings.
fn write_strings<'a>(work: &mut Work, texts: impl Iterator<Item = &'a str>) -> Result<()> {
    work.out.buffer().push(b'[');
    let mut n_unchecked = 0;
    for (i, text) in texts.enumerate() {
        work.comma(i);
        json::write_html_string(work.out.buffer(), text.as_bytes());
        // Not after each of thousands of short strings: a step reads the clock.
        n_unchecked += text.len();
        if n_unchecked >= STEP_SIZE {
            work.out.step()?;
            n_unchecked = 0;
        }
    }
    work.out.buffer().push(b']');
    work.out.step()
}
