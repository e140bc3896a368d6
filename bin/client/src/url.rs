//! The URL of a server.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The bytes that are percent-encoded in a component of a URL: all but the unreserved characters of
/// RFC 3986.
pub const PERCENT_ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The URL of a server: `http://host:port/path` or `https://host:port/path`.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) is_https: bool,
    /// The host, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path, without a final slash.
    pub(super) path: String,
    /// The userinfo as credentials of basic authentication.
    pub(super) basic: Option<String>,
}

impl Url {
    /// Returns `true` if the host has no dot and the port is the default one: a single word.
    pub fn is_word(&self) -> bool {
        let is_default = self.port == if self.is_https { 443 } else { 80 };
        is_default && !self.host.contains(['.', ':']) && self.host != "localhost"
    }

    /// Parses `http://host:port/path`. The default scheme is http, as in Prometheus' tools.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let is_https = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err("expected http:// or https://".to_owned()),
        };
        let expected = || "expected http://host:port/path".to_owned();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if path.contains(['?', '#']) || path.parse::<hyper::Uri>().is_err() && !path.is_empty() {
            return Err(expected());
        }
        let (userinfo, authority) = match authority.rsplit_once('@') {
            Some((userinfo, authority)) => (Some(userinfo), authority),
            None => (None, authority),
        };
        let (host, port) = split_port(authority).ok_or_else(expected)?;
        let port = port.unwrap_or(if is_https { 443 } else { 80 });
        let host = host.to_owned();
        let path = path.trim_end_matches('/').to_owned();
        let basic = userinfo.map(|userinfo| {
            let mut decoded = Cow::from(percent_decode_str(userinfo)).into_owned();
            if !userinfo.contains(':') {
                decoded.push(b':');
            }
            STANDARD.encode(decoded)
        });
        Ok(Self {
            is_https,
            host,
            port,
            path,
            basic,
        })
    }

    /// Returns the host, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the host, with the brackets of IPv6, and the port unless it is that of the scheme.
    pub fn host_and_port(&self) -> String {
        let authority = self.authority();
        let port = if self.is_https { ":443" } else { ":80" };
        match authority.strip_suffix(port) {
            Some(host) => host.to_owned(),
            None => authority,
        }
    }

    /// Returns the path, without a final slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns `true` if the server is asked through TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns host and port as in the `Host` header.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Prints the URL without its userinfo.
impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Splits `host:port` or `[address]:port`, where the port is optional. Returns the host without
/// brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                if port.is_empty() {
                    None
                } else {
                    Some(port.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port
        .map(|port| port.parse().ok())
        .map_or(Some(None), |port: Option<u16>| port.map(Some))?;
    is_host(host).then_some((host, port))
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#\\".contains(&byte))
}

/// Escapes text for a query string.
pub fn escape(text: &str) -> String {
    utf8_percent_encode(text, PERCENT_ENCODED).to_string()
}

/// Encodes parameters as a form, or as the query of a URL.
pub fn encode_form(params: &[(&str, String)]) -> String {
    let mut form = String::new();
    for (name, value) in params {
        if !form.is_empty() {
            form.push('&');
        }
        form.push_str(&escape(name));
        form.push('=');
        form.push_str(&escape(value));
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        let matched = ("match[]", "{a=\"b c\"}".to_owned());
        assert_eq!(encode_form(&[]), "");
        assert_eq!(
            encode_form(&[matched, ("x", "1&2".to_owned())]),
            "match%5B%5D=%7Ba%3D%22b%20c%22%7D&x=1%262"
        );
    }

    fn check(text: &str, expect: Option<&str>) {
        assert_eq!(
            Url::parse(text).ok().map(|url| url.to_string()).as_deref(),
            expect,
            "{text}"
        );
    }

    #[test]
    fn text_is_escaped_for_a_query_string() {
        assert_eq!(escape("{a=\"b\"}"), "%7Ba%3D%22b%22%7D");
    }

    #[test]
    fn urls_have_scheme_port_and_path() {
        check(
            "http://localhost:9898/api/v1/write",
            Some("http://localhost:9898/api/v1/write"),
        );
        check("http://[::1]:9898/", Some("http://[::1]:9898"));
        check("http://[::1]", Some("http://[::1]:80"));
        check("http://store", Some("http://store:80"));
        check("https://store/a", Some("https://store:443/a"));
        check("localhost:9090", Some("http://localhost:9090"));
        check("ftp://store:1", None);
        check("http:///write", None);
        check("http://store:port", None);
        check("http://[::1]1", None);
        check("http://store:1/a b", None);
        check("http://store:1/?a", None);
    }

    #[test]
    fn the_parts_of_a_url() {
        let url = Url::parse("https://ann@[fd00::1]:8/a/b/").unwrap();
        assert_eq!((url.host(), url.path()), ("fd00::1", "/a/b"));
        assert_eq!(url.host_and_port(), "[fd00::1]:8");
        assert!(url.is_https());
        let url = Url::parse("http://store").unwrap();
        assert_eq!((url.host(), url.path()), ("store", ""));
        assert_eq!(url.host_and_port(), "store");
        assert!(!url.is_https());
    }

    #[test]
    fn the_password_of_a_url_is_not_printed() {
        let url = Url::parse("https://ann:a%40b@store").unwrap();
        assert_eq!(
            url.basic.as_deref(),
            Some(STANDARD.encode("ann:a@b").as_str())
        );
        assert_eq!(format!("{url:?}"), "https://store:443");
    }
}
