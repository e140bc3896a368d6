//! /api/v1/query, /api/v1/query_range and /api/v1/query_explain.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CACHE_CONTROL;
use varve_advise::usage::Requester;
use varve_context::QueryContext;
use varve_fs::{Clock, SystemClock};
use varve_query::stats::StatsMode;
use varve_query::usage::{self, SelectorUse};
use varve_query::{Engine, ParsedQuery, QueryResult, Request, Steps, Value};
use varve_server::queries::query_stats::{self, StatsLevel};
use varve_server::request_context::{self, RequestContext};
use varve_server::store::Store;
use varve_tsdb::ReadContext;

use super::result::write_result;
use crate::error::{ApiError, Result};
use crate::params::{Form, Verbatim, parse_bool};
use crate::requester::RequestedBy;
use crate::serving::run::{Job, RequestClass, TRUNCATED, Work, run, run_job};
use crate::serving::state::HttpState;

/// GET and POST /api/v1/query.
pub(crate) async fn instant(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    // The order is Prometheus': the first invalid parameter is reported.
    let limit = form.limit()?;
    let steps = instant_of(&form)?;
    let mut options = Options::read(&form, &headers, limit)?;
    // Without a time, no other request has the same one.
    options.use_cache &= !form.first("time").is_empty();
    evaluate(&state, who, options, steps).await
}

/// GET and POST /api/v1/query_range.
pub(crate) async fn range(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    let limit = form.limit()?;
    let steps = form.steps(state.app.settings.args.query_max_points)?;
    evaluate(&state, who, Options::read(&form, &headers, limit)?, steps).await
}

/// GET and POST /api/v1/query_explain: evaluates a query, instant or with `start`, `end` and `step`
/// over a range, and responds with statistics of each operator of its plan.
pub(crate) async fn explain(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    let is_instant = ["start", "end", "step"]
        .iter()
        .all(|name| form.first(name).is_empty());
    let steps = if is_instant {
        instant_of(&form)?
    } else {
        form.steps(state.app.settings.args.query_max_points)?
    };
    let options = Options {
        stats: StatsLevel::Plan,
        use_cache: false,
        ..Options::read(&form, &headers, None)?
    };
    let context = RequestContext::current();
    note_times(&context, steps);
    run(&state, RequestClass::Query, options.timeout, move |work| {
        let (result, infos) = options.evaluate(work, &who, None, steps, options.stats.asked())?;
        result
            .stats
            .iter()
            .for_each(|stats| context.note_stats(stats));
        work.out.drop_permit();
        work.open();
        if let Some(stats) = &result.stats {
            let memory_peak = work.ctx.memory().peak();
            query_stats::write(
                work.out.buffer(),
                stats,
                work.queued,
                memory_peak,
                options.stats,
            );
        }
        let warnings: Vec<String> = result.annotations.warnings().collect();
        work.close(&warnings, &infos)
    })
    .await
}

fn instant_of(form: &Form) -> Result<Steps> {
    Ok(Steps::instant(
        form.optional_time_ms("time")?
            .unwrap_or_else(|| SystemClock.now_ms()),
    ))
}

async fn evaluate(state: &HttpState, who: Requester, options: Options, steps: Steps) -> Result {
    let context = RequestContext::current();
    note_times(&context, steps);
    let is_logged = state.app.query_log.is_enabled();
    let parameters = format!("{who:?} {options:?} {steps:?}");
    let timeout = options.timeout;
    let evaluation = Evaluation {
        options,
        who,
        steps,
        is_logged,
        context,
        parsed: None,
    };
    run_job(state, RequestClass::Query, timeout, parameters, evaluation).await
}

/// The evaluation of a query.
struct Evaluation {
    options: Options,
    who: Requester,
    steps: Steps,
    /// The query log is enabled.
    is_logged: bool,
    context: Arc<RequestContext>,
    parsed: Option<ParsedQuery>,
}

impl Job for Evaluation {
    fn is_small(&mut self, ctx: &ReadContext, store: &Store) -> bool {
        // The query log is a file.
        if self.is_logged || !Engine::is_small_text(&self.options.query) {
            return false;
        }
        // An error is reported when the query runs. A query that is not small is parsed again
        // there, so that its statistics do not include the time until a thread was free.
        let parsed = store.engine.parse(ctx, &self.options.query).ok();
        let request = self.options.request(self.steps, StatsMode::Off);
        self.parsed =
            parsed.filter(|parsed| store.engine.is_small(&store.db, ctx, parsed, &request));
        self.parsed.is_some()
    }

    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        let Self {
            options,
            who,
            steps,
            is_logged,
            context,
            parsed,
        } = *self;
        // The query log has statistics even where the response has none.
        let asked = if is_logged {
            options.stats.asked_for_log()
        } else {
            options.stats.asked()
        };
        let (result, infos) = options.evaluate(work, &who, parsed, steps, asked)?;
        let QueryResult {
            value,
            annotations,
            stats,
            charge: _value_charge,
        } = result;
        stats.iter().for_each(|stats| context.note_stats(stats));
        work.out.drop_permit();
        let _part = context.part("encode");
        let shown = stats
            .as_deref()
            .filter(|_| options.stats != StatsLevel::None)
            .map(|stats| (stats, options.stats));
        let is_truncated = write_result(work, value, shown, options.limit.unwrap_or(usize::MAX))?;
        let mut warnings: Vec<String> = annotations.warnings().collect();
        warnings.extend(is_truncated.then(|| TRUNCATED.to_owned()));
        warnings.extend(options.stats_warning);
        work.close(&warnings, &infos)
    }
}

/// Sets the times of a query for lists and logs.
pub(crate) fn note_times(context: &RequestContext, steps: Steps) {
    context.note_times(request_context::Times {
        start_ms: steps.start_ms(),
        end_ms: steps.end_ms(),
        step_ms: steps.step_ms(),
    });
}

/// The parameters that instant and range queries share.
#[derive(Debug)]
struct Options {
    query: Verbatim,
    timeout: Option<Duration>,
    lookback_delta_ms: Option<i64>,
    limit: Option<usize>,
    stats: StatsLevel,
    stats_warning: Option<String>,
    use_start_timestamps: Option<bool>,
    /// The response may come from the result cache.
    use_cache: bool,
}

/// Overrides the feature `use-start-timestamps` for one query.
const USE_START_TIMESTAMPS: &str = "X-Prometheus-Use-Start-Timestamps";

impl Options {
    fn read(form: &Form, headers: &HeaderMap, limit: Option<usize>) -> Result<Self> {
        let timeout = form.timeout()?;
        let lookback_delta_ms = form.lookback_delta_ms()?;
        let use_start_timestamps = use_start_timestamps(headers)?;
        let stats = form.first("stats");
        let (stats, stats_warning) = (StatsLevel::read(stats), StatsLevel::warning(stats));
        let query = form.first("query").into();
        let use_cache = !is_no_cache(form.first("nocache"), headers);
        Ok(Self {
            query,
            timeout,
            lookback_delta_ms,
            limit,
            stats,
            stats_warning,
            use_start_timestamps,
            use_cache,
        })
    }

    fn request(&self, steps: Steps, stats: StatsMode) -> Request<'_> {
        let &Self {
            lookback_delta_ms,
            use_start_timestamps,
            use_cache,
            ..
        } = self;
        let request = Request::new(&self.query, steps);
        Request {
            lookback_delta_ms,
            stats,
            use_start_timestamps,
            use_cache,
            ..request
        }
    }

    /// Returns the result and its infos.
    fn evaluate(
        &self,
        work: &Work,
        who: &Requester,
        parsed: Option<ParsedQuery>,
        steps: Steps,
        stats: StatsMode,
    ) -> Result<(QueryResult, Vec<String>)> {
        let note = if self.stats == StatsLevel::Plan {
            Store::note_without_samples
        } else {
            Store::note_query
        };
        evaluate_in(work, who, parsed, &self.request(steps, stats), note)
    }
}

/// Records the uses of a query.
type Note = fn(&Store, &QueryContext, &Requester, &[SelectorUse]);

/// Evaluates a query, which may be parsed already, and records its uses with `note`. Returns the
/// result and its infos.
pub(crate) fn evaluate_in(
    work: &Work,
    who: &Requester,
    parsed: Option<ParsedQuery>,
    request: &Request<'_>,
    note: Note,
) -> Result<(QueryResult, Vec<String>)> {
    let Work {
        store,
        ctx,
        context,
        ..
    } = work;
    let end_ms = request.steps.end_ms();
    let part = context.part("parse");
    let parsed = parsed.map_or_else(|| store.engine.parse(ctx, request.query), Ok)?;
    let selectors = usage::of(parsed.expr());
    note(store, ctx, who, &selectors);
    drop(part);
    let part = context.part("evaluate");
    let result = store.engine.run_parsed(&store.db, ctx, parsed, request)?;
    drop(part);
    let mut infos: Vec<String> = result.annotations.infos().collect();
    let is_empty = match &result.value {
        Value::Vector(samples) => samples.is_empty(),
        Value::Matrix(series) => series.is_empty(),
        Value::Scalar(_) | Value::String { .. } => false,
    };
    // Rules belong to all tenants together.
    if is_empty && ctx.restriction().is_empty() {
        infos.extend(store.dropped_infos(ctx, &selectors, end_ms)?);
    }
    Ok((result, infos))
}

/// Returns `true` if a request skips the result cache, with the parameter `nocache` or with
/// `Cache-Control: no-cache`.
fn is_no_cache(nocache: &str, headers: &HeaderMap) -> bool {
    let directives = headers
        .get_all(CACHE_CONTROL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut directives = directives.flat_map(|value| value.split(','));
    let is_no = |directive: &str| {
        ["no-cache", "no-store"]
            .iter()
            .any(|no| directive.trim().eq_ignore_ascii_case(no))
    };
    !matches!(nocache, "" | "0" | "false") || directives.any(is_no)
}

/// Returns the value of the header, or `None` without it.
fn use_start_timestamps(headers: &HeaderMap) -> Result<Option<bool>> {
    let Some(value) = headers
        .get(USE_START_TIMESTAMPS)
        .filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    let invalid = |reason| {
        ApiError::bad_data(format!(
            "error parsing {USE_START_TIMESTAMPS} header: {reason}"
        ))
    };
    parse_bool(&String::from_utf8_lossy(value.as_bytes()))
        .map(Some)
        .map_err(invalid)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_header_overrides_the_use_of_start_timestamps() {
        let read = |value: &'static str| {
            let headers = HeaderMap::from_iter([(
                USE_START_TIMESTAMPS.parse().expect("a header name"),
                HeaderValue::from_static(value),
            )]);
            use_start_timestamps(&headers).map_err(|error| error.message)
        };
        assert_eq!(use_start_timestamps(&HeaderMap::new()), Ok(None));
        for (value, expect) in [("", None), ("true", Some(true)), ("0", Some(false))] {
            assert_eq!(read(value), Ok(expect), "{value}");
        }
        let invalid = "error parsing X-Prometheus-Use-Start-Timestamps header: strconv.ParseBool: parsing \"yes\": \
                       invalid syntax";
        assert_eq!(read("yes"), Err(invalid.to_owned()));
    }

    #[test]
    fn the_cache_is_skipped_on_request() {
        for (nocache, header, expect) in [
            ("", "", false),
            ("0", "max-age=0", false),
            ("1", "", true),
            ("", "no-cache", true),
            ("", "max-age=0, No-Cache", true),
        ] {
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static(header))]);
            assert_eq!(is_no_cache(nocache, &headers), expect, "{nocache} {header}");
        }
    }
}
