//! The permissions of bearer tokens, and which one a request needs.

use axum::http::Method;
use serde::Deserialize;

use crate::grpc;

/// A permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    Read,
    Write,
    Admin,
}

impl Scope {
    /// Returns the scope that a request needs.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let under = |folder: &str| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let admin = ["/api/v1/admin", "/debug", "/-/quit", "/-/reload"]
            .into_iter()
            .any(under);
        if admin || matches!(*method, Method::DELETE | Method::PUT) {
            Self::Admin
        } else if [
            "/api/v1/write",
            "/api/v1/otlp",
            "/api/v1/import",
            grpc::WRITE_PATH,
        ]
        .into_iter()
        .any(under)
        {
            Self::Write
        } else {
            Self::Read
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_needs_its_scope() {
        let check = |method: Method, path: &str, expect| {
            assert_eq!(Scope::of(&method, path), expect, "{path}")
        };
        check(Method::GET, "/api/v1/query", Scope::Read);
        check(Method::POST, "/api/v1/query_range", Scope::Read);
        check(Method::GET, "/-/ready", Scope::Read);
        check(Method::POST, "/api/v1/write", Scope::Write);
        check(Method::POST, "/api/v1/otlp/v1/metrics", Scope::Write);
        check(
            Method::POST,
            "/thanos.WriteableStore/RemoteWrite",
            Scope::Write,
        );
        check(Method::POST, "/thanos.Store/Series", Scope::Read);
        check(Method::GET, "/api/v1/status/queries", Scope::Read);
        check(Method::DELETE, "/api/v1/status/queries/1", Scope::Admin);
        check(Method::POST, "/api/v1/admin/tsdb/snapshot", Scope::Admin);
        check(Method::GET, "/debug/pprof/profile", Scope::Admin);
        check(Method::POST, "/-/reload", Scope::Admin);
    }
}
