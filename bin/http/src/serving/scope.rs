//! Which permission a request needs, and whether pages of other origins may send it.

use axum::http::Method;
use varve_config::web::Scope;
use varve_wire::rpc::EXPORT_PATH;
use varve_wire::thanos::REMOTE_WRITE_PATH;

/// Paths of administration, with everything under them.
const ADMIN_PATHS: [&str; 4] = ["/api/v1/admin", "/debug", "/-/quit", "/-/reload"];
/// Paths of writes, with everything under them.
const WRITE_PATHS: [&str; 5] = [
    "/api/v1/write",
    "/api/v1/otlp",
    "/api/v1/import",
    REMOTE_WRITE_PATH,
    EXPORT_PATH,
];

/// The path of push libraries, whose PUT and DELETE are writes, too.
const PUSH_PATH: &str = "/api/v1/import/prometheus/metrics";

/// Paths of Varve's own reads that compute with what a client sends: no page of another origin has
/// a reason to start this work.
const SAME_ORIGIN_PATHS: [&str; 5] = [
    "/api/v1/query_explain",
    "/api/v1/rules/explain",
    "/api/v1/rules/backtest",
    "/api/v1/status/relabel/test",
    "/api/v1/status/cardinality",
];

/// Returns `true` if a page of another origin may send the request: it changes no state, and its
/// path is not in [`SAME_ORIGIN_PATHS`].
pub(crate) fn allows_cross_origin(method: &Method, path: &str) -> bool {
    if *method == Method::OPTIONS {
        return true;
    }
    if is_under(path, &SAME_ORIGIN_PATHS) {
        return false;
    }
    matches!(*method, Method::GET | Method::HEAD) || required_scope(method, path) == Scope::Read
}

/// Returns the scope that a request needs.
pub(crate) fn required_scope(method: &Method, path: &str) -> Scope {
    let is_change = matches!(*method, Method::DELETE | Method::PUT);
    if is_under(path, &[PUSH_PATH]) {
        Scope::Write
    } else if is_change || is_under(path, &ADMIN_PATHS) {
        Scope::Admin
    } else if is_under(path, &WRITE_PATHS) {
        Scope::Write
    } else {
        Scope::Read
    }
}

fn is_under(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_needs_its_scope() {
        let check = |method: Method, path: &str, expect| {
            assert_eq!(required_scope(&method, path), expect, "{path}")
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
        check(Method::POST, EXPORT_PATH, Scope::Write);
        let pushed = "/api/v1/import/prometheus/metrics/job/x";
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            check(method, pushed, Scope::Write);
        }
        check(Method::PUT, "/api/v1/import/prometheus", Scope::Admin);
        check(Method::POST, "/thanos.Store/Series", Scope::Read);
        check(Method::GET, "/api/v1/status/queries", Scope::Read);
        check(Method::DELETE, "/api/v1/status/queries/1", Scope::Admin);
        check(Method::POST, "/api/v1/admin/tsdb/snapshot", Scope::Admin);
        check(Method::GET, "/debug/pprof/profile", Scope::Admin);
        check(Method::POST, "/-/reload", Scope::Admin);
    }
}
