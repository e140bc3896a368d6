//! The probes of orchestrators and load balancers, which send no credentials: of `/-/healthy` and
//! `/-/ready` anybody learns the status, and nothing else.

use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use crate::response::plain;

/// A request that needs no credentials if only its status is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Healthy,
    Ready,
}

impl Probe {
    /// Returns the probe of a request. Returns `None` if it has parameters: `for=write` writes a
    /// file.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        if !matches!(*method, Method::GET | Method::HEAD) || uri.query().is_some() {
            return None;
        }
        match uri.path() {
            "/-/healthy" => Some(Self::Healthy),
            "/-/ready" => Some(Self::Ready),
            _ => None,
        }
    }

    /// Returns a response with the status of another one, and a text that the status implies.
    pub(crate) fn without_text(self, response: &Response) -> Response {
        let status = response.status();
        let text = match self {
            Self::Healthy if status == StatusCode::OK => "Varve is Healthy.\n",
            Self::Ready if status == StatusCode::OK => "Varve is Ready.\n",
            _ => status.canonical_reason().unwrap_or_default(),
        };
        plain(status, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_one_of_two_paths_without_parameters() {
        let check = |method: Method, uri: &'static str, expect| {
            let found = Probe::of(&method, &Uri::from_static(uri));
            assert_eq!(found, expect, "{method} {uri}");
        };
        check(Method::GET, "/-/healthy", Some(Probe::Healthy));
        check(Method::HEAD, "/-/ready", Some(Probe::Ready));
        for uri in [
            "/-/ready?for=write",
            "/-/ready?",
            "/-/ready/",
            "/-/quit",
            "/metrics",
            "/",
        ] {
            check(Method::GET, uri, None);
        }
        check(Method::POST, "/-/ready", None);
    }
}
