//! Who sent a request: its record, the requester of a query, and the headers of Grafana.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use varve_advise::usage::{Requester, TOOLS_AGENT};
use varve_server::requests::record::RequestRecord;
use varve_wire::active_requests::GrafanaSource;

use crate::error::{ApiError, Result};

/// Maximum size of a header.
const HEADER_SIZE_MAX: usize = 128;

/// Returns the record of a request by its extensions.
///
/// # Errors
/// If there is none. The layer around all handlers adds one, so no handler is without.
pub(crate) fn record_of(extensions: &Extensions) -> Result<Arc<RequestRecord>> {
    extensions
        .get::<Arc<RequestRecord>>()
        .cloned()
        .ok_or_else(|| ApiError::internal("the request has no record"))
}

/// Extracts the requester of a request.
pub(crate) struct RequestedBy(pub(crate) Requester);

impl<S: Sync> FromRequestParts<S> for RequestedBy {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let headers = &parts.headers;
        let GrafanaSource {
            dashboard,
            panel,
            rule,
            ..
        } = grafana_source(headers);
        // The web page reads every metric to show what there is, which does not count as a use.
        let is_inspection = headers.contains_key("x-varve-inspection");
        Ok(Self(Requester {
            user_agent: if is_inspection {
                TOOLS_AGENT.into()
            } else {
                truncated(headers, "user-agent").into()
            },
            dashboard: dashboard.into(),
            panel: panel.into(),
            rule: rule.into(),
        }))
    }
}

/// Returns what Grafana says of a request in its headers.
pub(crate) fn grafana_source(headers: &HeaderMap) -> GrafanaSource {
    GrafanaSource {
        dashboard: truncated(headers, "x-dashboard-uid"),
        panel: truncated(headers, "x-panel-id"),
        rule: truncated(headers, "x-rule-uid"),
        user: truncated(headers, "x-grafana-user"),
    }
}

/// Returns the start of a header as text, empty if it is missing.
fn truncated(headers: &HeaderMap, name: &str) -> String {
    let bytes = headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(HEADER_SIZE_MAX)]);
    // A truncated character decodes to a replacement character.
    text.chars()
        .take_while(|c| *c != char::REPLACEMENT_CHARACTER)
        .collect()
}
