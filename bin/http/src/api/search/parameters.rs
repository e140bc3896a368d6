//! The parameters of a search.

use varve_env::{Clock, SystemClock};
use varve_model::{Matcher, TimeRange};
use varve_system::excerpt::quotable;
use varve_tsdb::ReadContext;

use super::score::{Algorithm, Term};
use crate::error::{ApiError, Result};
use crate::params::{Form, parse_int, parse_selectors};

/// The algorithms that compare terms with names.
pub(crate) const ALGORITHMS: [&str; 2] = ["subsequence", "jarowinkler"];

const HOUR_MS: i64 = 3_600_000;
const LIMIT_DEFAULT: usize = 100;
const BATCH_SIZE_DEFAULT: usize = 100;
const BATCH_SIZE_MAX: usize = 1000;
/// Maximum number of terms: each is compared with every name.
const TERMS_MAX: usize = 32;
/// Maximum size of a term in bytes: the default maximum of a label value.
const TERM_SIZE_MAX: usize = 64 << 10;

/// The parameters of a search.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) selectors: Vec<Vec<Matcher>>,
    pub(super) range: TimeRange,
    pub(super) terms: Vec<Term>,
    pub(super) case_sensitive: bool,
    pub(super) include_score: bool,
    pub(super) order: Order,
    pub(super) limit: usize,
    pub(super) batch_size: usize,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
    /// Best first. Equal scores are in ascending order of names.
    Score,
}

impl Search {
    /// Parses the parameters in Prometheus' order, so that the same invalid parameter is reported.
    pub(super) fn read(
        ctx: &ReadContext,
        form: &Form,
        endpoint: &str,
        limit_max: usize,
    ) -> Result<Self> {
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
        // An unknown order is reported after the other parameters.
        let order = order.ok_or_else(|| {
            let by = quotable(form.first("sort_by"));
            ApiError::bad_data(format!(
                "invalid sort_by {by:?} for {endpoint}: must be \"alpha\" or \"score\""
            ))
        })?;

        let terms = read_terms(form, algorithm, threshold, case_sensitive);
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
}

/// Returns the terms to compare with names. Empty ones are ignored.
fn read_terms(
    form: &Form,
    algorithm: Algorithm,
    threshold: f64,
    case_sensitive: bool,
) -> Vec<Term> {
    let mut terms = Vec::new();
    for text in form.all("search[]") {
        if text.is_empty() {
            continue;
        }
        let text = if case_sensitive {
            text.to_owned()
        } else {
            text.to_lowercase()
        };
        terms.push(Term::new(text, algorithm, threshold));
    }
    terms
}

fn read_range(form: &Form) -> Result<TimeRange> {
    let now_ms = SystemClock.now_ms();
    let range = TimeRange {
        start_ms: read_time(form, "start")?.unwrap_or(now_ms - HOUR_MS),
        end_ms: read_time(form, "end")?.unwrap_or(now_ms),
    };
    if range.end_ms < range.start_ms {
        Err(ApiError::bad_data(
            "end timestamp must not be before start timestamp",
        ))
    } else {
        Ok(range)
    }
}

fn read_time(form: &Form, name: &str) -> Result<Option<i64>> {
    // Unlike elsewhere, the message names the parameter only once.
    form.time_ms_without_prefix(name)
        .map_err(ApiError::bad_data)
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
    let by = form.first("sort_by");
    let direction = form.first("sort_dir");
    if by.is_empty() && !direction.is_empty() {
        return Err(ApiError::bad_data(
            "sort_dir is only valid when sort_by is set",
        ));
    }
    if by == "score" && !direction.is_empty() {
        return Err(ApiError::bad_data(
            "sort_dir is not supported for sort_by=score",
        ));
    }
    if !matches!(direction, "" | "asc" | "dsc") {
        return Err(ApiError::bad_data(format!(
            "invalid sort_dir {:?}: must be \"asc\" or \"dsc\"",
            quotable(direction)
        )));
    }
    if by == "score" && !has_terms {
        return Err(ApiError::bad_data(
            "sort_by=score requires search[] to be set",
        ));
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

pub(super) fn boolean(form: &Form, name: &str, default: bool) -> Result<bool> {
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
}
