//! `--web.external-url` and `--web.route-prefix`: the URL under which clients reach this server,
//! and the prefix of all its paths.
//!
//! They differ if a reverse proxy changes paths. Links for clients contain the external URL. The
//! router and its redirects use the prefix. Both are computed as in Prometheus.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use varve_system::machine;

/// The ASCII characters that a path escapes.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The URL under which clients reach this server. Its path has no final slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalUrl {
    text: String,
    /// The part of `text` that is the path, with its percent escapes.
    path: String,
}

/// The path under which all endpoints are served: empty, or a slash and at least one element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutePrefix(String);

impl ExternalUrl {
    /// Parses the value of the flag. An empty text yields the default value.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(['"', '\'']) || text.ends_with(['"', '\'']) {
            return Err("URL must not begin or end with quotes".to_owned());
        }
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("invalid control character in URL".to_owned());
        }
        let (url, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
        let (scheme, rest) = split_scheme(url)?;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(after) => rest.split_at(2 + after.find('/').unwrap_or(after.len())),
            None if scheme.is_empty() || rest.starts_with('/') => ("", rest),
            // As in Prometheus, `localhost:9090` has the scheme `localhost` and no path.
            None => (rest, ""),
        };
        if scheme.is_empty()
            && authority.is_empty()
            && path
                .split('/')
                .next()
                .is_some_and(|part| part.contains(':'))
        {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
        check_authority(authority)?;
        let path = escape_path(path.trim_end_matches('/'))?;
        let path = if path.is_empty() || path.starts_with('/') {
            path
        } else {
            format!("/{path}")
        };
        Ok(Self {
            text: format!("{}{authority}{path}{query}", scheme.to_ascii_lowercase()),
            path,
        })
    }

    /// Returns this URL, or by default the URL of the machine's name and the port of the listener.
    pub fn or_listener(self, address: &str, is_tls: bool) -> Self {
        if !self.text.is_empty() {
            return self;
        }
        let scheme = if is_tls { "https" } else { "http" };
        let host = machine::hostname();
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        Self {
            text: format!("{scheme}://{host}:{port}"),
            path: String::new(),
        }
    }

    /// Returns the URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Splits `scheme:` off.
fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    match url.find(|c| !is_letter(c)) {
        Some(0) if url.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end)
            if url[end..].starts_with(':')
                && url.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            Ok(url.split_at(end + 1))
        }
        _ => Ok(("", url)),
    }
}

fn check_authority(authority: &str) -> Result<(), String> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    if let Some(c) = host
        .chars()
        .find(|c| !c.is_ascii_graphic() || "<>\"\\^`{|}".contains(*c))
    {
        return Err(format!("invalid character {c:?} in host name"));
    }
    let after_address = host.rsplit(']').next().unwrap_or_default();
    match after_address.split_once(':') {
        Some((_, port)) if !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("invalid port {:?} after host", format!(":{port}")))
        }
        _ => Ok(()),
    }
}

/// Escapes the bytes that a path must not contain. Keeps existing escapes.
fn escape_path(path: &str) -> Result<String, String> {
    const BUT_ESCAPES: &AsciiSet = &ESCAPED.remove(b'%');
    for (at, _) in path.match_indices('%') {
        let escape = path.get(at..at + 3).unwrap_or(&path[at..]);
        if escape.len() < 3 || !escape[1..].bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("invalid URL escape {escape:?}"));
        }
    }
    Ok(utf8_percent_encode(path, BUT_ESCAPES).to_string())
}

impl RoutePrefix {
    /// Returns the prefix of the flag `--web.route-prefix`, by default the path of the external
    /// URL.
    pub fn new(flag: &str, url: &ExternalUrl) -> Self {
        let of_url = percent_decode_str(&url.path).decode_utf8_lossy();
        let prefix = if flag.is_empty() { &of_url } else { flag };
        let elements = prefix.trim_matches('/');
        Self(if elements.is_empty() {
            String::new()
        } else {
            format!("/{elements}")
        })
    }

    /// Returns `true` if endpoints have no prefix.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part of a path after the prefix, or `None` if the path begins with other
    /// elements.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.is_empty() {
            return Some(path);
        }
        // The path may be escaped in several ways, so its elements are compared unescaped.
        let n_elements = self.0.matches('/').count();
        let end = path
            .match_indices('/')
            .nth(n_elements)
            .map_or(path.len(), |(at, _)| at);
        let (head, rest) = path.split_at(end);
        percent_decode_str(head).eq(self.0.bytes()).then_some(rest)
    }

    /// Returns the prefix with percent escapes, for a URL.
    pub fn escaped(&self) -> String {
        utf8_percent_encode(&self.0, ESCAPED).to_string()
    }
}

/// As Prometheus prints it: `/` is no prefix.
impl fmt::Display for RoutePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "/" } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_prefixes_are_those_of_prometheus() {
        let check = |text: &str, expect: &str| {
            let got = match ExternalUrl::parse(text) {
                Ok(url) => format!("{} {}", url.as_str(), RoutePrefix::new("", &url).0),
                Err(error) => error,
            };
            assert_eq!(got, expect, "{text}");
        };
        check("http://ex.org", "http://ex.org ");
        check("http://ex.org/", "http://ex.org ");
        check("http://ex.org/prom/", "http://ex.org/prom /prom");
        check("HTTP://Ex.org:9090/a/b//", "http://Ex.org:9090/a/b /a/b");
        check(
            "http://u:p@[::1]:9090/x?y=1#z",
            "http://u:p@[::1]:9090/x?y=1#z /x",
        );
        check("/prom", "/prom /prom");
        check("prom/", "/prom /prom");
        check("//h/x", "//h/x /x");
        check("http:/x", "http:/x /x");
        check("ex.org", "/ex.org /ex.org");
        check("a/b:c", "/a/b:c /a/b:c");
        check("localhost:9090", "localhost:9090 ");
        check("http://h/a b", "http://h/a%20b /a b");
        check("http://h/a%20b", "http://h/a%20b /a b");
        check("http://h/é{x}", "http://h/%C3%A9%7Bx%7D /é{x}");
        check("http://h/%zz", "invalid URL escape \"%zz\"");
        check("http://h/%4", "invalid URL escape \"%4\"");
        check("http://h:x/", "invalid port \":x\" after host");
        check("http://h h/", "invalid character ' ' in host name");
        check(":x", "missing protocol scheme");
        check("x_y:9090", "first path segment in URL cannot contain colon");
        check("\"http://h\"", "URL must not begin or end with quotes");
        check("http://h/\n", "invalid control character in URL");
    }

    #[test]
    fn the_default_url_has_the_port_of_the_listener() {
        let url = |text: &str, is_tls| {
            ExternalUrl::parse(text)
                .unwrap()
                .or_listener("[::]:9898", is_tls)
                .text
        };
        let host = machine::hostname();
        assert_eq!(url("", false), format!("http://{host}:9898"));
        assert_eq!(url("", true), format!("https://{host}:9898"));
        assert_eq!(url("http://ex.org", true), "http://ex.org");
    }

    #[test]
    fn a_prefix_is_stripped_element_by_element() {
        let check = |flag: &str, path: &str, expect: Option<&str>| {
            let prefix = RoutePrefix::new(flag, &ExternalUrl::parse("http://h/ext").unwrap());
            assert_eq!(prefix.strip(path), expect, "{flag} {path}");
        };
        check("", "/ext/metrics", Some("/metrics"));
        check("/", "/ext/metrics", Some("/ext/metrics"));
        check("prom/", "/prom/metrics", Some("/metrics"));
        check("/prom", "/prom", Some(""));
        check("/prom", "/prom/", Some("/"));
        check("/prom", "/promx/metrics", None);
        check("/prom", "/", None);
        check("/prom", "/pr%6Fm/-/healthy", Some("/-/healthy"));
        check("/a b/c", "/a%20b/c/metrics", Some("/metrics"));
        check("/a b/c", "/a%20b/metrics", None);
        assert_eq!(
            RoutePrefix::new("/a b/é", &ExternalUrl::default()).escaped(),
            "/a%20b/%C3%A9"
        );
    }
}
