//! Responses to queries: a client that bounds them, and what they contain.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::client::{Client, Response};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response.
const RESPONSE_SIZE_MAX: u64 = 1 << 30;
/// A response to a query.
#[derive(Deserialize)]
struct QueryResponse {
    data: QueryData,
}

#[derive(Deserialize)]
struct QueryData {
    #[serde(rename = "resultType")]
    result_type: String,
    result: Vec<IgnoredAny>,
}

/// Returns a client with bounds for the queries.
pub(super) fn client(server: &str) -> Client {
    Client::new(server).with_bounds(TIMEOUT, RESPONSE_SIZE_MAX)
}

/// Returns the status and the text of an error.
pub(super) fn error(response: &Response) -> String {
    format!("{}: {}", response.status, response.text())
}

/// Returns the number of series in a response. A scalar or string counts as one, except NaN, which
/// `scalar` returns without data.
pub(super) fn n_series(body: &[u8]) -> Result<usize> {
    let response: QueryResponse = serde_json::from_slice(body).context("parse the response")?;
    if !matches!(response.data.result_type.as_str(), "scalar" | "string") {
        return Ok(response.data.result.len());
    }
    let response: Value = serde_json::from_slice(body).context("parse the response")?;
    Ok(usize::from(response["data"]["result"][1] != "NaN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_and_a_scalar_is_one_unless_it_is_nan() {
        let check = |result_type: &str, result: &str, expect: usize| {
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"{result_type}","result":{result}}}}}"#
            );
            assert_eq!(n_series(body.as_bytes()).unwrap(), expect, "{result_type}");
        };
        check("matrix", r#"[{"metric":{},"values":[[1,"2"]]}, {}]"#, 2);
        check("vector", "[]", 0);
        check("scalar", r#"[1,"2"]"#, 1);
        check("scalar", r#"[1,"NaN"]"#, 0);
        assert!(n_series(b"{}").is_err());
    }
}
