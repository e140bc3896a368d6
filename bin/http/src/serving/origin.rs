//! Protection from requests that web pages send through the browser of a user.
//!
//! A browser adds its cached credentials to a form that any page posts. Therefore requests that
//! change state, and Varve's own reads that compute with what a client sends, must come from a page
//! of this server, or from no page. With DNS rebinding, the host name of a foreign page resolves to
//! this server, and the browser treats both as the same origin. `--web.allowed-hosts` rejects such a
//! name.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{Version, header};

use super::scope::allows_cross_origin;

/// Checks `Host`. If pages of other origins must not send the request, also checks `Sec-Fetch-Site`
/// or `Origin`. An empty `allowed_hosts` allows all hosts.
///
/// # Errors
/// The reason to reject the request.
pub(super) fn check(request: &Request, allowed_hosts: &[String]) -> Result<(), String> {
    // HTTP/2 has `:authority` instead.
    let host = header_text(request, "host").or_else(|| {
        request
            .uri()
            .authority()
            .map(|authority| authority.as_str())
    });
    if !host.is_none_or(|host| is_allowed(host, allowed_hosts)) {
        return Err(format!(
            "Forbidden: the host {:?} is not one of --web.allowed-hosts\n",
            host.unwrap_or_default()
        ));
    }
    if allows_cross_origin(request.method(), request.uri().path()) {
        return Ok(());
    }
    let origin = header_text(request, "origin");
    let is_same_origin = match (header_text(request, "sec-fetch-site"), origin) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => is_origin_of(origin, host.unwrap_or_default()),
        // A client that is not a browser.
        (None, None) => true,
    };
    let from = origin.unwrap_or("another origin");
    if is_same_origin {
        Ok(())
    } else {
        Err(format!(
            "Forbidden: a page of {from} must not send this request\n"
        ))
    }
}

/// Checks that a request of HTTP/1 has at most one `Host`, that it can be a host, and that a request
/// of HTTP/1.1 has one, as RFC 9112 and Go's server require. An empty `Host` is one.
///
/// # Errors
/// The reason to reject the request, in the words of Go's server.
pub(super) fn check_host_header(request: &Request) -> Result<(), &'static str> {
    if request.version() > Version::HTTP_11 {
        return Ok(());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let Some(host) = hosts.next() else {
        return if request.version() == Version::HTTP_11 {
            Err("missing required Host header")
        } else {
            Ok(())
        };
    };
    if hosts.next().is_some() {
        return Err("too many Host headers");
    }
    if host.as_bytes().iter().all(|&byte| is_host_byte(byte)) {
        Ok(())
    } else {
        Err("malformed Host header")
    }
}

/// Returns `true` for the bytes that Go's server accepts in `Host`.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

fn header_text<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let value = request.headers().get(name)?;
    Some(value.to_str().unwrap_or("?"))
}

/// Returns `true` if a host, with or without a port, is an IP address, `localhost` or one of
/// `allowed`.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |p| p.0);
    let is_address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .is_ok();
    let mut known = allowed.iter().map(String::as_str).chain(["localhost"]);
    allowed.is_empty() || is_address || known.any(|known| known.eq_ignore_ascii_case(name))
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let port = if scheme == "https" { ":443" } else { ":80" };
    without_port(authority, port).eq_ignore_ascii_case(without_port(host, port))
}

fn without_port<'a>(authority: &'a str, port: &str) -> &'a str {
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn a_request_has_one_valid_host() {
        let check = |version: Version, hosts: &[&str], expect: Result<(), &'static str>| {
            let mut request = Request::builder().version(version);
            for host in hosts {
                request = request.header("host", *host);
            }
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(check_host_header(&request), expect, "{version:?} {hosts:?}");
        };
        check(Version::HTTP_11, &["a.example:80"], Ok(()));
        check(Version::HTTP_11, &["[::1%25eth0]:80"], Ok(()));
        check(Version::HTTP_11, &[""], Ok(()));
        check(Version::HTTP_11, &[], Err("missing required Host header"));
        check(Version::HTTP_11, &["a", "a"], Err("too many Host headers"));
        check(Version::HTTP_11, &["a b"], Err("malformed Host header"));
        check(Version::HTTP_11, &["a/b"], Err("malformed Host header"));
        check(Version::HTTP_10, &[], Ok(()));
        check(Version::HTTP_10, &["a", "b"], Err("too many Host headers"));
        // HTTP/2 has `:authority`.
        check(Version::HTTP_2, &[], Ok(()));
    }

    #[test]
    fn hosts_are_compared_without_their_port() {
        let allowed = ["varve.example".to_owned()];
        for (host, expect) in [
            ("varve.example", true),
            ("VARVE.example:9898", true),
            ("localhost:1", true),
            ("127.0.0.1:9898", true),
            ("[::1]:9898", true),
            ("evil.example", false),
            ("varve.example.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(host, &allowed), expect, "{host}");
            assert!(is_allowed(host, &[]));
        }
    }

    #[test]
    fn pages_of_other_origins_change_no_state() {
        let check_request = |method: &str, path: &str, site: &str, origin: &str, expect: bool| {
            let mut request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "a.example:80");
            for (name, value) in [("sec-fetch-site", site), ("origin", origin)] {
                request = if value.is_empty() {
                    request
                } else {
                    request.header(name, value)
                };
            }
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(
                check(&request, &[]).is_ok(),
                expect,
                "{method} {path} {site} {origin}"
            );
        };
        for path in [
            "/api/v1/admin/tsdb/delete_series",
            "/-/quit",
            "/api/v1/write",
            "/api/v1/otlp/v1/metrics",
            // Reads, but any page could make the server work for minutes.
            "/api/v1/rules/backtest",
            "/api/v1/query_explain",
            "/api/v1/status/relabel/test",
        ] {
            check_request("POST", path, "", "", true);
            check_request("POST", path, "same-origin", "", true);
            check_request("POST", path, "none", "", true);
            check_request("POST", path, "cross-site", "", false);
            check_request("POST", path, "same-site", "http://a.example", false);
            check_request("POST", path, "", "http://a.example", true);
            check_request("POST", path, "", "http://A.example:80", true);
            check_request("POST", path, "", "https://a.example", false);
            check_request("POST", path, "", "http://b.example", false);
            check_request("POST", path, "", "null", false);
        }
        check_request(
            "DELETE",
            "/api/v1/status/queries/1",
            "cross-site",
            "",
            false,
        );
        let explain = "/api/v1/rules/explain";
        check_request("GET", explain, "cross-site", "", false);
        check_request("GET", explain, "same-origin", "", true);
        check_request("GET", explain, "", "", true);
        check_request(
            "OPTIONS",
            "/api/v1/admin/tsdb/snapshot",
            "cross-site",
            "http://b.example",
            true,
        );
        check_request(
            "POST",
            "/api/v1/query",
            "cross-site",
            "http://b.example",
            true,
        );
    }
}
