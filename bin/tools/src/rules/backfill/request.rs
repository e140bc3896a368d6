//! Requests of a backfill, and what their errors mean.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::Value as Json;
use varve_client::{Client, Response, ResponseTooLarge, encode_form};
use varve_system::quantity::print_duration;

use crate::query::response::{Stream, Value, read_data};

/// Status of a query whose evaluation fails.
const UNPROCESSABLE: u16 = 422;
/// Status of a query that takes too long, and of a request that the server does not serve now: it
/// starts or stops, or other queries hold its memory or its places.
const UNAVAILABLE: u16 = 503;
/// `errorType` of a query that takes too long.
const TIMEOUT: &str = "timeout";
/// Error of a query that the server ended because all queries together needed too much memory.
const ENDED: &str = "query was ended to free memory";
/// Errors of limits of memory and of samples. Prometheus has no memory limit; its only limit error
/// is "too many samples".
const LIMITS: [&str; 2] = ["exceeds the limit of", "too many samples"];
/// Minimum and maximum pause before a request is repeated.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum sum of the pauses of a request.
const PAUSES_MAX: Duration = Duration::from_secs(600);

/// The error of a query.
#[derive(Debug)]
pub(super) enum QueryError {
    /// The evaluation fails, as it would in a running server.
    Evaluation(String),
    /// The result is too large or takes too long. Fewer evaluations may succeed.
    TooLarge(anyhow::Error),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for QueryError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Sends a query and returns its result, a matrix.
pub(super) fn matrix(
    client: &mut Client,
    path: &str,
    params: &[(&str, String)],
) -> Result<Vec<Stream>, QueryError> {
    let response = match post(client, path, &encode_form(params)) {
        Ok(response) => response,
        Err(error) if error.is::<ResponseTooLarge>() => return Err(QueryError::TooLarge(error)),
        Err(error) => return Err(error.into()),
    };
    if let Some(error) = query_error(&response) {
        return Err(error);
    }
    client.ensure_success(path, &response)?;
    match read_data(&response)? {
        Value::Matrix(streams) => Ok(streams),
        Value::Vector(_) | Value::Scalar(_) | Value::String(_) => {
            Err(anyhow!("the server returned no matrix").into())
        }
    }
}

/// Returns the error of a response to a query, if it says something about the query.
fn query_error(response: &Response) -> Option<QueryError> {
    if ![UNAVAILABLE, UNPROCESSABLE].contains(&response.status) {
        return None;
    }
    let error = response.error();
    let is_limit = LIMITS.iter().any(|limit| error.contains(limit));
    Some(if is_unavailable(response) {
        QueryError::Other(anyhow!(error))
    } else if response.status == UNAVAILABLE || is_limit {
        QueryError::TooLarge(anyhow!(error))
    } else {
        QueryError::Evaluation(error)
    })
}

/// Sends a form. While the server is unavailable, repeats the request with pauses of up to
/// [`PAUSES_MAX`] together.
///
/// # Errors
/// If no response arrives. Any status is a response.
pub(super) fn post(client: &mut Client, path: &str, form: &str) -> Result<Response> {
    let mut pauses = Pauses::default();
    loop {
        let response = client.post_form(path, form)?;
        if !is_unavailable(&response) {
            return Ok(response);
        }
        let is_first = pauses.sum.is_zero();
        let Some(pause) = pauses.next(retry_after(&response)) else {
            return Ok(response);
        };
        if is_first {
            eprintln!(
                "the server is unavailable, and the request is repeated for up to {}: {}",
                print_duration(PAUSES_MAX),
                response.error()
            );
        }
        thread::sleep(pause);
    }
}

/// Returns `true` if the same request may succeed later.
fn is_unavailable(response: &Response) -> bool {
    match response.status {
        UNAVAILABLE => error_type(response).is_none_or(|error_type| error_type != TIMEOUT),
        UNPROCESSABLE => response.error().contains(ENDED),
        _ => false,
    }
}

fn error_type(response: &Response) -> Option<String> {
    let json: Json = serde_json::from_slice(&response.body).ok()?;
    json.get("errorType")?.as_str().map(str::to_owned)
}

/// Returns the pause that the server asks for.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers.get("retry-after")?.to_str().ok()?;
    value.parse().ok().map(Duration::from_secs)
}

/// The pauses between the repetitions of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Pauses {
    last: Duration,
    sum: Duration,
}

impl Pauses {
    /// Returns the next pause: the one that the server asks for, else twice the last one. `None` if
    /// the sum would exceed [`PAUSES_MAX`].
    fn next(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        let pause = retry_after.unwrap_or(self.last * 2);
        self.last = pause.clamp(PAUSE_MIN, PAUSE_MAX);
        self.sum += self.last;
        (self.sum <= PAUSES_MAX).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Answer, serve};
    use super::*;
    use varve_context::{Interrupt, Limit};

    fn response(status: u16, error_type: &str, error: &str) -> Response {
        let body = serde_json::json!({"status": "error", "errorType": error_type, "error": error});
        Response {
            status,
            headers: Default::default(),
            body: body.to_string().into(),
        }
    }

    #[test]
    fn errors_are_repeated_or_halved_or_those_of_the_rule() {
        let limit = varve_context::Error::Limit {
            what: Limit::QueryMemory,
            used: 2,
            limit: 1,
        };
        for (status, error_type, error, expect) in [
            (
                503,
                "unavailable",
                "the server is stopping".to_owned(),
                "repeated",
            ),
            (503, "timeout", Interrupt::Deadline.to_string(), "halved"),
            (
                422,
                "execution",
                Interrupt::Heaviest.to_string(),
                "repeated",
            ),
            (
                422,
                "execution",
                Interrupt::Pressure.to_string(),
                "repeated",
            ),
            (422, "execution", limit.to_string(), "halved"),
            (
                422,
                "execution",
                "query processing would load too many samples into memory".to_owned(),
                "halved",
            ),
            (
                422,
                "execution",
                "many-to-many matching".to_owned(),
                "of the rule",
            ),
            (400, "bad_data", "invalid parameter".to_owned(), "other"),
        ] {
            let response = response(status, error_type, &error);
            let found = match query_error(&response) {
                _ if is_unavailable(&response) => "repeated",
                Some(QueryError::TooLarge(_)) => "halved",
                Some(QueryError::Evaluation(_)) => "of the rule",
                Some(QueryError::Other(_)) | None => "other",
            };
            assert_eq!(found, expect, "{error}");
        }
    }

    #[test]
    fn pauses_double_within_bounds_unless_the_server_asks_for_one() {
        let mut pauses = Pauses::default();
        let found: Vec<u64> =
            std::iter::from_fn(|| pauses.next(None).map(|pause| pause.as_secs())).collect();
        assert_eq!(found[..7], [1, 2, 4, 8, 16, 30, 30]);
        let sum = Duration::from_secs(found.iter().sum());
        assert!(sum <= PAUSES_MAX && sum + PAUSE_MAX > PAUSES_MAX, "{sum:?}");
        for (asked_s, expect_s) in [(0, 1), (5, 5), (u64::MAX, 30)] {
            let asked = Some(Duration::from_secs(asked_s));
            let pause = Pauses::default().next(asked);
            assert_eq!(pause, Some(Duration::from_secs(expect_s)));
        }
    }

    /// The request used to be sent for fewer evaluations without a pause, and the backfill ended.
    #[test]
    fn a_request_is_repeated_while_the_server_is_unavailable() {
        let matrix_data = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        let mut client = serve(vec![
            Answer::new("503 Service Unavailable", "the server is stopping"),
            Answer::new("200 OK", matrix_data),
        ]);
        let found = matrix(
            &mut client,
            "/api/v1/query",
            &[("query", "a[1m]".to_owned())],
        );
        assert!(found.unwrap().is_empty());
    }
}
