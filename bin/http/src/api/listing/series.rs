//! /api/v1/series: the label sets of matching series, streamed.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_advise::usage::Requester;
use varve_context::QueryContext;
use varve_model::{Labels, Matcher};
use varve_query::Engine;
use varve_query::usage::LabelSet;
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_tsdb::ReadContext;

use super::request::Request;
use crate::error::Result;
use crate::json;
use crate::params::{Form, invalid_match, parse_selector, parse_selectors};
use crate::requester::RequestedBy;
use crate::serving::run::{Job, RequestClass, TRUNCATED, Work, run_shared};
use crate::serving::state::HttpState;

/// Maximum number of series that a listing visits on the thread of its connection.
const SMALL_SERIES_MAX: u64 = 100;

/// GET and POST /api/v1/series.
pub(crate) async fn series(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    let request = Arc::new(read(&form, who)?);
    let timeout = form.timeout()?;
    let parameters = Arc::clone(&request);
    let job = Box::new(SeriesJob(request));
    run_shared(
        &state,
        &record,
        RequestClass::Metadata,
        timeout,
        parameters,
        job,
    )
    .await
}

fn read(form: &Form, who: Requester) -> Result<Request> {
    form.check_encoding()?;
    Request::read(form, who, form.required_selectors()?)
}

struct SeriesJob(Arc<Request>);

impl Job for SeriesJob {
    fn is_small(&mut self, ctx: &ReadContext, store: &Store) -> bool {
        let Request {
            selectors, range, ..
        } = &*self.0;
        // An error is reported when the request runs.
        let [selector] = &selectors[..] else {
            return false;
        };
        if !Engine::is_small_text(selector) {
            return false;
        }
        let Ok(matchers) = parse_selector(ctx, selector, invalid_match) else {
            return false;
        };
        let n_series = store.db.series_in_heads_max(ctx, &matchers, *range);
        n_series.is_some_and(|n_series| n_series <= SMALL_SERIES_MAX)
    }

    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        self.0.respond(work)
    }
}

impl Request {
    fn respond(&self, work: &mut Work) -> Result<()> {
        let selectors = parse_selectors(&work.ctx, &self.selectors, invalid_match)?;
        work.store
            .note_metadata(&work.ctx, &self.who, &selectors, &LabelSet::all());
        work.open();
        work.out.buffer().push(b'[');
        let is_truncated = self.write_series(work, &selectors)?;
        work.out.buffer().push(b']');
        let mut warnings = Vec::new();
        if is_truncated {
            warnings.push(TRUNCATED.to_owned());
        }
        work.close(&warnings, &[])
    }

    /// Writes the union of the selections. Returns `true` if the limit truncated it.
    ///
    /// A series that an earlier selector matches was written already. Testing the earlier
    /// selectors, instead of remembering the written series, takes no memory. At most the limit was
    /// written before, so that one more than the limit is enough of each selection.
    fn write_series(&self, work: &mut Work, selectors: &[Vec<Matcher>]) -> Result<bool> {
        let n_max = self.limit.saturating_add(1);
        let mut n_written = 0;
        for (i, matchers) in selectors.iter().enumerate() {
            for series in work
                .store
                .db
                .select_first_labels(&work.ctx, matchers, self.range, n_max)?
            {
                let series = series?;
                if is_selected(&work.ctx, &selectors[..i], series.labels())? {
                    continue;
                }
                if n_written == self.limit {
                    return Ok(true);
                }
                work.comma(n_written);
                json::write_labels(work.out.buffer(), series.labels());
                work.out.step()?;
                n_written += 1;
            }
        }
        Ok(false)
    }
}

/// Returns `true` if one of the selectors matches a series.
fn is_selected(ctx: &QueryContext, selectors: &[Vec<Matcher>], labels: &Labels) -> Result<bool> {
    for matchers in selectors {
        ctx.check()?;
        if matchers
            .iter()
            .all(|matcher| matcher.matches(labels.get(matcher.name()).unwrap_or("")))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoded: &str, expect: &str) {
        let mut form = Form::default();
        form.add(encoded.as_bytes()).unwrap();
        assert_eq!(
            read(&form, Requester::default()).unwrap_err().message,
            expect
        );
    }

    #[test]
    fn requests_are_rejected_in_the_words_of_prometheus() {
        check("", "no match[] parameter provided");
        check(
            "match[]=%zz",
            "error parsing form values: invalid URL escape \"%zz\"",
        );
        check(
            "match[]=up&limit=-1",
            "invalid parameter \"limit\": limit must be non-negative",
        );
        check(
            "match[]=up&end=x",
            "invalid parameter \"end\": invalid time value for 'end': cannot parse \"x\" to a valid timestamp",
        );
    }

    #[test]
    fn an_absent_label_is_empty() {
        let labels = Labels::from_pairs([("__name__", "up")]).unwrap();
        let check = |matchers: Vec<Matcher>, expect| {
            assert_eq!(
                is_selected(&QueryContext::unbounded(), &[matchers], &labels),
                Ok(expect)
            );
        };
        check(
            vec![Matcher::equal("__name__", "up"), Matcher::equal("job", "")],
            true,
        );
        check(vec![Matcher::equal("job", "x")], false);
    }
}
