//! Who sent a query: for running queries, the most expensive ones, and the query log.

use std::sync::Arc;

use varve_wire::active_requests::GrafanaSource;

/// Who sent a query. The usage record keeps a part of it, without users:
/// [`Requester`](varve_advise::usage::Requester).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct QueryRequester {
    /// Empty without authentication.
    pub user: Arc<str>,
    /// The user agent, truncated.
    pub user_agent: String,
    /// What Grafana's headers say.
    pub grafana: GrafanaSource,
}

impl QueryRequester {
    /// Returns the names of the parts in the API, with their values.
    pub fn fields(&self) -> [(&'static str, &str); 6] {
        let Self {
            user,
            user_agent,
            grafana,
        } = self;
        [
            ("user", user),
            ("userAgent", user_agent),
            ("dashboard", &grafana.dashboard),
            ("panel", &grafana.panel),
            ("grafanaRule", &grafana.rule),
            ("grafanaUser", &grafana.user),
        ]
    }
}
