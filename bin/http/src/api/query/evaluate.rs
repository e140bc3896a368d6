//! /api/v1/query, /api/v1/query_range and /api/v1/query_explain.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CACHE_CONTROL;
use varve_advise::usage::Requester;
use varve_env::{Clock, SystemClock};
use varve_query::stats::StatsMode;
use varve_query::usage::{self, SelectorUse};
use varve_query::{Engine, ParsedQuery, QueryResult, Request, Steps, Value};
use varve_server::queries::query_stats::{self, StatsLevel};
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_tsdb::ReadContext;

use super::result::write_result;
use crate::error::{ApiError, Result};
use crate::params::{Form, parse_bool};
use crate::requester::RequestedBy;
use crate::serving::run::{Job, RequestClass, TRUNCATED, Work, job_fn, run, run_shared};
use crate::serving::state::HttpState;

/// GET and POST /api/v1/query.
pub(crate) async fn instant(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    // The order is Prometheus': the first invalid parameter is reported.
    let limit = form.limit()?;
    let steps = instant_of(&form)?;
    let mut query = Query::read(&form, &headers, who, steps, limit)?;
    // Without a time, no other request has the same one.
    query.use_cache &= !form.first("time").is_empty();
    respond(&state, &record, query).await
}

/// GET and POST /api/v1/query_range.
pub(crate) async fn range(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    let limit = form.limit()?;
    let steps = form.steps(state.app.settings.query.points_max)?;
    let query = Query::read(&form, &headers, who, steps, limit)?;
    respond(&state, &record, query).await
}

/// GET and POST /api/v1/query_explain: evaluates a query, instant or with `start`, `end` and `step`
/// over a range, and responds with statistics of each operator of its plan.
pub(crate) async fn explain(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
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
        form.steps(state.app.settings.query.points_max)?
    };
    let query = Query {
        stats: StatsLevel::Plan,
        use_cache: false,
        ..Query::read(&form, &headers, who, steps, None)?
    };
    record.note_steps(steps);
    let timeout = query.timeout;
    let job = job_fn(move |work| {
        let request = query.request(query.stats.stats_mode());
        let (result, infos) = evaluate(
            work,
            &query.who,
            None,
            &request,
            Store::note_without_samples,
        )?;
        work.out.drop_permit();

        work.open();
        if let Some(stats) = &result.stats {
            work.record.note_stats(stats);
            let memory_peak = work.ctx.memory().peak();
            query_stats::write(
                work.out.buffer(),
                stats,
                work.record.queued(),
                memory_peak,
                query.stats,
            );
        }
        let warnings: Vec<String> = result.annotations.warnings().collect();
        work.close(&warnings, &infos)
    });
    run(&state, &record, RequestClass::Query, timeout, job).await
}

fn instant_of(form: &Form) -> Result<Steps> {
    let time_ms = form.optional_time_ms("time")?;
    Ok(Steps::instant(
        time_ms.unwrap_or_else(|| SystemClock.now_ms()),
    ))
}

async fn respond(state: &HttpState, record: &Arc<RequestRecord>, query: Query) -> Result {
    record.note_steps(query.steps);
    let timeout = query.timeout;
    let query = Arc::new(query);
    let job = Box::new(QueryJob {
        query: Arc::clone(&query),
        is_logged: state.app.requests.query_log.is_enabled(),
        parsed: None,
    });
    run_shared(state, record, RequestClass::Query, timeout, query, job).await
}

/// The parameters of a query, and who requested it: everything that its response depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Query {
    who: Requester,
    text: String,
    steps: Steps,
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

impl Query {
    fn read(
        form: &Form,
        headers: &HeaderMap,
        who: Requester,
        steps: Steps,
        limit: Option<usize>,
    ) -> Result<Self> {
        let timeout = form.timeout()?;
        let lookback_delta_ms = form.lookback_delta_ms()?;
        let use_start_timestamps = use_start_timestamps(headers)?;
        let stats = form.first("stats");
        Ok(Self {
            who,
            text: form.first("query").to_owned(),
            steps,
            timeout,
            lookback_delta_ms,
            limit,
            stats: StatsLevel::read(stats),
            stats_warning: StatsLevel::warning(stats),
            use_start_timestamps,
            use_cache: !is_no_cache(form.first("nocache"), headers),
        })
    }

    /// Returns the request to the engine.
    fn request(&self, stats: StatsMode) -> Request<'_> {
        Request {
            lookback_delta_ms: self.lookback_delta_ms,
            stats,
            use_start_timestamps: self.use_start_timestamps,
            use_cache: self.use_cache,
            ..Request::new(&self.text, self.steps)
        }
    }
}

/// Evaluates a query, and writes its value.
struct QueryJob {
    query: Arc<Query>,
    /// The query log is enabled.
    is_logged: bool,
    parsed: Option<ParsedQuery>,
}

impl Job for QueryJob {
    fn is_small(&mut self, ctx: &ReadContext, store: &Store) -> bool {
        // The query log is a file.
        if self.is_logged || !Engine::is_small_text(&self.query.text) {
            return false;
        }
        // An error is reported when the query runs. A query that is not small is parsed again
        // there, so that its statistics do not include the time until a thread was free.
        let Ok(parsed) = store.engine.parse(ctx, &self.query.text) else {
            return false;
        };
        let request = self.query.request(StatsMode::Off);
        let is_small = store.engine.is_small(&store.db, ctx, &parsed, &request);
        if is_small {
            self.parsed = Some(parsed);
        }
        is_small
    }

    fn run(self: Box<Self>, work: &mut Work) -> Result<()> {
        let Self {
            query,
            is_logged,
            parsed,
        } = *self;
        // The query log has statistics even where the response has none.
        let stats_mode = if is_logged {
            query.stats.stats_mode_with_log()
        } else {
            query.stats.stats_mode()
        };
        let request = query.request(stats_mode);
        let (result, infos) = evaluate(work, &query.who, parsed, &request, Store::note_query)?;
        let QueryResult {
            value,
            annotations,
            stats,
            charge,
        } = result;
        if let Some(stats) = &stats {
            work.record.note_stats(stats);
        }
        work.out.drop_permit();

        let record = Arc::clone(&work.record);
        let _part = record.part("encode");
        let shown = match &stats {
            Some(stats) if query.stats != StatsLevel::None => Some((&**stats, query.stats)),
            _ => None,
        };
        let limit = query.limit.unwrap_or(usize::MAX);
        let is_truncated = write_result(work, value, charge, shown, limit)?;
        let mut warnings: Vec<String> = annotations.warnings().collect();
        if is_truncated {
            warnings.push(TRUNCATED.to_owned());
        }
        warnings.extend(query.stats_warning.clone());
        work.close(&warnings, &infos)
    }
}

/// Records the uses of a query in the store.
type RecordUses = fn(&Store, &ReadContext, &Requester, &[SelectorUse]);

/// Evaluates a query, which may be parsed already, and records its uses with `record_uses`.
/// Returns the result and its infos.
pub(crate) fn evaluate(
    work: &Work,
    who: &Requester,
    parsed: Option<ParsedQuery>,
    request: &Request<'_>,
    record_uses: RecordUses,
) -> Result<(QueryResult, Vec<String>)> {
    let Work {
        store, ctx, record, ..
    } = work;
    let part = record.part("parse");
    let parsed = match parsed {
        Some(parsed) => parsed,
        None => store.engine.parse(ctx, request.query)?,
    };
    let selectors = usage::of(parsed.expr());
    record_uses(store, ctx, who, &selectors);
    drop(part);

    let part = record.part("evaluate");
    let result = store.engine.run_parsed(&store.db, ctx, parsed, request)?;
    drop(part);

    let mut infos: Vec<String> = result.annotations.infos().collect();
    let now_ms = SystemClock.now_ms();
    // Relabel rules apply to all tenants: an info about them would show one tenant what they drop
    // of another.
    if ctx.restriction().is_empty() && lacks_last_value(&result.value, request.steps, now_ms) {
        let end_ms = request.steps.end_ms().min(now_ms);
        infos.extend(store.dropped_infos(ctx, &selectors, end_ms)?);
    }
    Ok((result, infos))
}

/// Returns `true` if a value is empty, or is a graph whose lines all end before the last step that
/// is not in the future.
fn lacks_last_value(value: &Value, steps: Steps, now_ms: i64) -> bool {
    let series = match value {
        Value::Vector(samples) => return samples.is_empty(),
        Value::Matrix(series) => series,
        Value::Scalar(_) | Value::String { .. } => return false,
    };
    // The samples of `up[5m]` in an instant query have times of their own.
    if steps.is_instant() || now_ms < steps.start_ms() {
        return series.is_empty();
    }
    let end_ms = steps.end_ms().min(now_ms);
    let length_ms = end_ms.saturating_sub(steps.start_ms());
    let last_ms = end_ms - length_ms % steps.step_ms().max(1);
    !series.iter().any(|series| {
        let float = series.points.last().map(|point| point.timestamp_ms);
        let histogram = series.histograms.last().map(|point| point.timestamp_ms);
        float.max(histogram) >= Some(last_ms)
    })
}

/// Returns `true` if a request skips the result cache, with the parameter `nocache` or with
/// `Cache-Control: no-cache`.
fn is_no_cache(nocache: &str, headers: &HeaderMap) -> bool {
    if !matches!(nocache, "" | "0" | "false") {
        return true;
    }
    for value in headers.get_all(CACHE_CONTROL) {
        for directive in value.to_str().unwrap_or_default().split(',') {
            let directive = directive.trim();
            if directive.eq_ignore_ascii_case("no-cache")
                || directive.eq_ignore_ascii_case("no-store")
            {
                return true;
            }
        }
    }
    false
}

/// Returns the value of the header, or `None` without it.
fn use_start_timestamps(headers: &HeaderMap) -> Result<Option<bool>> {
    let Some(value) = headers
        .get(USE_START_TIMESTAMPS)
        .filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    match parse_bool(&String::from_utf8_lossy(value.as_bytes())) {
        Ok(is_used) => Ok(Some(is_used)),
        Err(reason) => Err(ApiError::bad_data(format!(
            "error parsing {USE_START_TIMESTAMPS} header: {reason}"
        ))),
    }
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
