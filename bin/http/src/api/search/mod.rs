//! /api/v1/search/*: metric names, label names and label values that match search terms, for
//! completion while typing. Enabled by `--enable-feature=search-api`.
//!
//! The response has a JSON object per line: batches of results, then a line with the status. An
//! error after the first line aborts the response.

mod score;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use varve_advise::usage::Requester;
use varve_env::{Clock, SystemClock};
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::{Families, Metadata};
use varve_model::{Matcher, StringSet, TimeRange};
use varve_query::usage::LabelSet;
use varve_server::requests::record::RequestRecord;
use varve_system::excerpt::quotable;
use varve_tsdb::ReadContext;

use crate::error::{ApiError, ErrorKind, Result};
use crate::json;
use crate::params::{Form, parse_int, parse_selectors};
use crate::requester::RequestedBy;
use crate::serving::run::{Job, RequestClass, Work, run};
use crate::serving::state::HttpState;
use score::{Algorithm, Steps, Term};

/// The algorithms that compare terms with names.
pub(crate) const ALGORITHMS: [&str; 2] = ["subsequence", "jarowinkler"];

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
const HOUR_MS: i64 = 3_600_000;
const LIMIT_DEFAULT: usize = 100;
const BATCH_SIZE_DEFAULT: usize = 100;
const BATCH_SIZE_MAX: usize = 1000;
/// Maximum number of terms: each is compared with every name.
const TERMS_MAX: usize = 32;
/// Maximum size of a term in bytes: the default maximum of a label value.
const TERM_SIZE_MAX: usize = 64 << 10;
/// Names between two checks of the request's context.
const NAMES_PER_CHECK: usize = 256;

/// The object of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    MetricNames { with_metadata: bool },
    LabelNames,
    LabelValues { label: String },
}

impl Field {
    /// Returns the labels whose values the request uses.
    fn labels(&self) -> LabelSet {
        match self {
            Self::MetricNames { .. } | Self::LabelNames => LabelSet::none(),
            Self::LabelValues { label } => LabelSet::Only([label.clone()].into()),
        }
    }
}

/// GET and POST /api/v1/search/metric_names.
pub(crate) async fn metric_names(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    let field = |form: &Form| {
        Ok(Field::MetricNames {
            with_metadata: boolean(form, "include_metadata", false)?,
        })
    };
    search(&state, &record, who, form, "metric_names", field).await
}

/// GET and POST /api/v1/search/label_names.
pub(crate) async fn label_names(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    search(&state, &record, who, form, "label_names", |_| {
        Ok(Field::LabelNames)
    })
    .await
}

/// GET and POST /api/v1/search/label_values.
pub(crate) async fn label_values(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    let field = |form: &Form| match form.first("label") {
        "" => Err(ApiError::bad_data("missing required parameter \"label\"")),
        label => Ok(Field::LabelValues {
            label: label.to_owned(),
        }),
    };
    search(&state, &record, who, form, "label_values", field).await
}

async fn search(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    who: Requester,
    form: Form,
    endpoint: &'static str,
    field: impl FnOnce(&Form) -> Result<Field> + Send + 'static,
) -> Result {
    let settings = &state.app.settings;
    if !settings.web.search {
        return Err(ApiError::new(ErrorKind::Disabled, "search API disabled"));
    }
    let limit_max = settings.web.search_results_max;
    let timeout = form.timeout()?;
    let job = Job::from_fn(move |work| {
        let search = Search::read(&work.ctx, &form, endpoint, limit_max)?;
        search.respond(work, &who, &field(&form)?)
    });
    let response = run(state, record, RequestClass::Metadata, timeout, job);
    let mut response = response.await?;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    Ok(response)
}

/// The parameters of a search.
#[derive(Debug)]
struct Search {
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
    terms: Vec<Term>,
    case_sensitive: bool,
    include_score: bool,
    order: Order,
    limit: usize,
    batch_size: usize,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
    /// Best first. Equal scores are in ascending order of names.
    Score,
}

impl Search {
    /// Parses the parameters in Prometheus' order, so that the same invalid parameter is reported.
    fn read(ctx: &ReadContext, form: &Form, endpoint: &str, limit_max: usize) -> Result<Self> {
        form.check_encoding()?;
        let range = read_range(form)?;
        let selectors = parse_selectors(ctx, &form.selectors(), ApiError::bad_data)?;
        let n_terms = form.all("search[]").count();
        if n_terms > TERMS_MAX {
            let reason = format!("too many search[] terms: got {n_terms}, maximum is {TERMS_MAX}");
            return Err(ApiError::bad_data(reason));
        }
        if let Some(size) = form
            .all("search[]")
            .map(str::len)
            .find(|&size| size > TERM_SIZE_MAX)
        {
            let reason =
                format!("search[] term of {size} bytes exceeds the limit of {TERM_SIZE_MAX}");
            return Err(ApiError::bad_data(reason).with_limit("search term size"));
        }
        let threshold = read_threshold(form.first("fuzz_threshold"))?;
        let algorithm = read_algorithm(form.first("fuzz_alg"))?;
        let case_sensitive = boolean(form, "case_sensitive", true)?;
        let include_score = boolean(form, "include_score", false)?;
        let order = read_order(form, n_terms > 0)?;
        let limit = read_limit(form.first("limit"), limit_max)?;
        let batch_size =
            positive(form.first("batch_size"), "batch_size")?.unwrap_or(BATCH_SIZE_DEFAULT);
        let batch_size = batch_size.min(BATCH_SIZE_MAX);
        let order = order.ok_or_else(|| {
            let by = quotable(form.first("sort_by"));
            ApiError::bad_data(format!(
                "invalid sort_by {by:?} for {endpoint}: must be \"alpha\" or \"score\""
            ))
        })?;
        let term = |text: &str| {
            let text = if case_sensitive {
                text.to_owned()
            } else {
                text.to_lowercase()
            };
            Term::new(text, algorithm, threshold)
        };
        let terms = form
            .all("search[]")
            .filter(|text| !text.is_empty())
            .map(term)
            .collect();
        Ok(Self {
            selectors,
            range,
            terms,
            case_sensitive,
            include_score,
            order,
            limit,
            batch_size,
        })
    }

    fn respond(&self, work: &mut Work, who: &Requester, field: &Field) -> Result<()> {
        work.store
            .note_metadata(&work.ctx, who, &self.selectors, &field.labels());
        let names = self.find(work, field)?;
        let mut charge = work.ctx.charge();
        charge.grow(names.len() * size_of::<(&str, f64)>())?;
        let mut found = Vec::new();
        let mut chars = Vec::new();
        let mut steps = Steps::new(&work.ctx);
        for (i, name) in names.iter().enumerate() {
            if i % NAMES_PER_CHECK == 0 {
                work.ctx.check()?;
            }
            if let Some(score) = self.score(name, &mut chars, &mut steps)? {
                found.push((name, score));
            }
        }
        match self.order {
            Order::Ascending => {}
            Order::Descending => found.reverse(),
            Order::Score => {
                let best_first = |a: &(&str, f64), b: &(&str, f64)| {
                    b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0))
                };
                if found.len() > self.limit {
                    // Sorts only the returned names.
                    found.select_nth_unstable_by(self.limit, best_first);
                }
                let n_sorted = found.len().min(self.limit);
                found[..n_sorted].sort_unstable_by(best_first);
            }
        }
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let metadata = match field {
            Field::MetricNames {
                with_metadata: true,
            } => Some(work.store.db.metadata()),
            _ => None,
        };
        self.write(work, field, &found, has_more, metadata.as_deref())
    }

    /// Returns all names, before they are compared with the terms.
    fn find(&self, work: &Work, field: &Field) -> varve_tsdb::Result<StringSet> {
        let db = &work.store.db;
        let ctx = &work.ctx;
        let find = |matchers: &[Matcher]| match field {
            Field::MetricNames { .. } => db.label_values(ctx, METRIC_NAME, matchers, self.range),
            Field::LabelNames => db.label_names(ctx, matchers, self.range),
            Field::LabelValues { label } => db.label_values(ctx, label, matchers, self.range),
        };
        let mut selectors = self.selectors.iter();
        let mut names = find(selectors.next().map_or(&[], |matchers| matchers))?;
        for matchers in selectors {
            names.extend(&find(matchers)?)?;
        }
        Ok(names)
    }

    /// Returns the best score of a name over all terms, or `None` if none of them matches. `chars`
    /// is scratch space.
    fn score(
        &self,
        name: &str,
        chars: &mut Vec<char>,
        steps: &mut Steps<'_>,
    ) -> varve_tsdb::Result<Option<f64>> {
        if self.terms.is_empty() {
            return Ok(Some(1.0));
        }
        let lower = if self.case_sensitive {
            None
        } else {
            Some(name.to_lowercase())
        };
        let name = lower.as_deref().unwrap_or(name);
        chars.clear();
        chars.extend(name.chars());
        let mut best = None;
        for term in &self.terms {
            let score = term.score(name, chars, steps)?;
            best = best.into_iter().chain(score).max_by(f64::total_cmp);
        }
        Ok(best)
    }

    fn write(
        &self,
        work: &mut Work,
        field: &Field,
        found: &[(&str, f64)],
        has_more: bool,
        metadata: Option<&Families>,
    ) -> Result<()> {
        let key: &[u8] = if matches!(field, Field::LabelValues { .. }) {
            b"{\"value\":"
        } else {
            b"{\"name\":"
        };
        // An empty result has one empty batch.
        let batches = found
            .chunks(self.batch_size)
            .chain(found.is_empty().then_some(&[][..]));
        let warnings = Vec::from_iter(work.ctx.partial().map(str::to_owned));
        for (i, batch) in batches.enumerate() {
            work.out.buffer().extend_from_slice(b"{\"results\":");
            work.array(batch, |out, (name, score)| {
                out.extend_from_slice(key);
                json::write_html_string(out, name.as_bytes());
                if self.include_score {
                    out.extend_from_slice(
                        format!(",\"score\":{}", varve_promql::decimal::Json(*score)).as_bytes(),
                    );
                }
                if let Some(metadata) = metadata.and_then(|families| metadata_of(families, name)) {
                    write_metadata(out, metadata);
                }
                out.push(b'}');
            })?;
            if i == 0 && !warnings.is_empty() {
                work.out.buffer().extend_from_slice(b",\"warnings\":");
                work.array(&warnings, |out, text| {
                    json::write_html_string(out, text.as_bytes())
                })?;
            }
            work.out.buffer().extend_from_slice(b"}\n");
            work.out.step()?;
        }
        let end = format!("{{\"status\":\"success\",\"has_more\":{has_more}}}\n");
        work.out.buffer().extend_from_slice(end.as_bytes());
        work.out.step()
    }
}

/// Returns the metadata of a metric: of the family with its name, or of a family whose type allows
/// a suffix of the name.
fn metadata_of<'a>(families: &'a Families, name: &str) -> Option<&'a Metadata> {
    if let Some(metadata) = families.get(name) {
        return Some(metadata);
    }
    let (family, suffix) = name.rsplit_once('_')?;
    let kinds: &[&str] = match suffix {
        // In the text format of Prometheus, such a family has series of its own name.
        "total" if family.ends_with("_total") => &[],
        "info" if family.ends_with("_info") => &[],
        "total" => &["counter"],
        "info" => &["info"],
        "bucket" => &["histogram", "gaugehistogram"],
        "sum" | "count" => &["histogram", "gaugehistogram", "summary"],
        "gsum" | "gcount" => &["gaugehistogram"],
        _ => &[],
    };
    families
        .get(family)
        .map(|metadata| &**metadata)
        .filter(|metadata| kinds.contains(&&*metadata.kind))
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    for (name, text) in [
        ("type", &metadata.kind),
        ("help", &metadata.help),
        ("unit", &metadata.unit),
    ] {
        if !text.is_empty() {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            json::write_html_string(out, text.as_bytes());
        }
    }
}

fn read_range(form: &Form) -> Result<TimeRange> {
    let now_ms = SystemClock.now_ms();
    // Unlike elsewhere, the message names the parameter only once.
    let time = |name| form.plain_time_ms(name).map_err(ApiError::bad_data);
    let range = TimeRange {
        start_ms: time("start")?.unwrap_or(now_ms - HOUR_MS),
        end_ms: time("end")?.unwrap_or(now_ms),
    };
    if range.end_ms < range.start_ms {
        Err(ApiError::bad_data(
            "end timestamp must not be before start timestamp",
        ))
    } else {
        Ok(range)
    }
}

fn read_threshold(text: &str) -> Result<f64> {
    match text {
        "" => Ok(0.0),
        _ => match parse_int(text) {
            Ok(percent @ 0..=100) => Ok(percent as f64 / 100.0),
            _ => Err(ApiError::bad_data(format!(
                "invalid fuzz_threshold {:?}: must be 0-100",
                quotable(text)
            ))),
        },
    }
}

fn read_algorithm(text: &str) -> Result<Algorithm> {
    match text {
        "" | "subsequence" => Ok(Algorithm::Subsequence),
        "jarowinkler" => Ok(Algorithm::JaroWinkler),
        _ => {
            let known = ALGORITHMS.join(" ");
            Err(ApiError::bad_data(format!(
                "unsupported fuzz_alg {:?}: must be one of [{known}]",
                quotable(text)
            )))
        }
    }
}

/// Parses the order. Returns `None` for an unknown one, which the caller reports later.
fn read_order(form: &Form, has_terms: bool) -> Result<Option<Order>> {
    let invalid = |reason: &str| Err(ApiError::bad_data(reason));
    let by = form.first("sort_by");
    let direction = form.first("sort_dir");
    match (by, direction) {
        ("", direction) if !direction.is_empty() => {
            return invalid("sort_dir is only valid when sort_by is set");
        }
        ("score", direction) if !direction.is_empty() => {
            return invalid("sort_dir is not supported for sort_by=score");
        }
        _ if !matches!(direction, "" | "asc" | "dsc") => {
            return invalid(&format!(
                "invalid sort_dir {:?}: must be \"asc\" or \"dsc\"",
                quotable(direction)
            ));
        }
        ("score", _) if !has_terms => return invalid("sort_by=score requires search[] to be set"),
        _ => {}
    }
    Ok(match (by, direction) {
        ("score", _) => Some(Order::Score),
        ("alpha", "dsc") => Some(Order::Descending),
        ("" | "alpha", _) => Some(Order::Ascending),
        _ => None,
    })
}

fn read_limit(text: &str, limit_max: usize) -> Result<usize> {
    let is_bounded = limit_max > 0;
    match positive(text, "limit")? {
        None if is_bounded => Ok(LIMIT_DEFAULT.min(limit_max)),
        None => Ok(LIMIT_DEFAULT),
        Some(limit) if is_bounded && limit > limit_max => Err(ApiError::bad_data(format!(
            "limit {limit} exceeds the configured maximum ({limit_max}, see --web.search.max-limit)"
        ))),
        Some(limit) => Ok(limit),
    }
}

fn positive(text: &str, name: &str) -> Result<Option<usize>> {
    if text.is_empty() {
        return Ok(None);
    }
    match parse_int(text)
        .ok()
        .and_then(|number| usize::try_from(number).ok())
        .filter(|&number| number > 0)
    {
        Some(number) => Ok(Some(number)),
        None => Err(ApiError::bad_data(format!(
            "invalid {name} {:?}: must be a positive integer",
            quotable(text)
        ))),
    }
}

fn boolean(form: &Form, name: &str, default: bool) -> Result<bool> {
    match form.first(name) {
        "" => Ok(default),
        text => form.boolean(name).map_err(|_| {
            ApiError::bad_data(format!(
                "invalid {name} {:?}: must be boolean",
                quotable(text)
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(encoded: &str) -> Result<Search, String> {
        let mut form = Form::default();
        form.add(encoded.as_bytes()).unwrap();
        Search::read(&ReadContext::unbounded(), &form, "label_names", 1000)
            .map_err(|rejected| rejected.message)
    }

    #[test]
    fn parameters_are_rejected_in_the_words_of_prometheus() {
        for (encoded, expect) in [
            (
                "start=x",
                "invalid time value for 'start': cannot parse \"x\" to a valid timestamp",
            ),
            (
                "start=2&end=1",
                "end timestamp must not be before start timestamp",
            ),
            (
                "match[]={}",
                "match[] must contain at least one non-empty matcher",
            ),
            (
                "fuzz_threshold=101",
                "invalid fuzz_threshold \"101\": must be 0-100",
            ),
            (
                "fuzz_alg=x",
                "unsupported fuzz_alg \"x\": must be one of [subsequence jarowinkler]",
            ),
            (
                "case_sensitive=x",
                "invalid case_sensitive \"x\": must be boolean",
            ),
            ("sort_dir=asc", "sort_dir is only valid when sort_by is set"),
            (
                "sort_by=score&sort_dir=asc",
                "sort_dir is not supported for sort_by=score",
            ),
            (
                "sort_by=alpha&sort_dir=x",
                "invalid sort_dir \"x\": must be \"asc\" or \"dsc\"",
            ),
            ("sort_by=score", "sort_by=score requires search[] to be set"),
            (
                "sort_by=x",
                "invalid sort_by \"x\" for label_names: must be \"alpha\" or \"score\"",
            ),
            ("limit=0", "invalid limit \"0\": must be a positive integer"),
            (
                "limit=1001",
                "limit 1001 exceeds the configured maximum (1000, see --web.search.max-limit)",
            ),
            (
                "batch_size=x",
                "invalid batch_size \"x\": must be a positive integer",
            ),
            (
                &"search[]=a&".repeat(33),
                "too many search[] terms: got 33, maximum is 32",
            ),
            (
                &format!("search[]={}", "a".repeat(TERM_SIZE_MAX + 1)),
                "search[] term of 65537 bytes exceeds the limit of 65536",
            ),
        ] {
            assert_eq!(search(encoded).unwrap_err(), expect, "{encoded}");
        }
    }

    #[test]
    fn series_of_a_family_have_its_metadata() {
        let kinds = [
            ("a", "counter"),
            ("a_total", "counter"),
            ("h", "histogram"),
            ("s", "summary"),
            ("g", "gauge"),
        ];
        let family = |(name, kind): (&str, &str)| {
            (
                name.into(),
                Metadata {
                    kind: kind.into(),
                    ..Metadata::default()
                }
                .into(),
            )
        };
        let families: Families = kinds.into_iter().map(family).collect();
        for (name, expect) in [
            ("a", Some("counter")),
            ("a_total", Some("counter")),
            ("a_total_total", None),
            ("h_bucket", Some("histogram")),
            ("h_count", Some("histogram")),
            ("h_gcount", None),
            ("s_sum", Some("summary")),
            ("s_bucket", None),
            ("g_total", None),
            ("h_created", None),
            ("h", Some("histogram")),
            ("x", None),
        ] {
            assert_eq!(
                metadata_of(&families, name).map(|metadata| &*metadata.kind),
                expect,
                "{name}"
            );
        }
    }

    #[test]
    fn the_best_score_of_several_terms_counts() {
        let ctx = ReadContext::unbounded();
        let score = |encoded: &str, name: &str| {
            search(encoded)
                .unwrap()
                .score(name, &mut Vec::new(), &mut Steps::new(&ctx))
                .unwrap()
        };
        assert_eq!(score("", "anything"), Some(1.0));
        assert_eq!(score("search[]=&search[]=up", "up"), Some(1.0));
        assert_eq!(score("search[]=x&search[]=UP", "up"), None);
        assert_eq!(
            score("search[]=x&search[]=UP&case_sensitive=false", "Upper"),
            Some(1.0)
        );
    }
}
