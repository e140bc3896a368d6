//! The server of a command, and the credentials and TLS settings for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result, bail, ensure};
use clap::Args;
use varve_advise::usage::TOOLS_AGENT;
use varve_client::{Access, Client, ClientOptions, Remedies, Url};

use super::output::OutputArgs;

/// The server of commands that are given none.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:9898";
/// The user agent of `varve query`.
const QUERY_AGENT: &str = "varve-query";
/// Timeout of a request. A query of all data can take minutes.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Maximum size of a response.
const RESPONSE_SIZE_MAX: usize = 64 << 20;

/// The server, as the first argument or as `--url`.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Server [default: http://127.0.0.1:9898]
    #[arg(value_name = "SERVER", value_parser = Url::parse)]
    server: Option<Url>,

    /// Server, instead of the argument SERVER
    #[arg(long, alias = "server", value_name = "URL", value_parser = Url::parse, conflicts_with = "server")]
    url: Option<Url>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Rule files, and the server as the first argument or as `--url`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RuleFilesArgs {
    /// Rule files; the server may come first [default: http://127.0.0.1:9898]
    #[arg(value_name = "FILE", required = true)]
    server_and_files: Vec<PathBuf>,

    /// Server
    #[arg(long, alias = "server", value_name = "URL", value_parser = Url::parse)]
    url: Option<Url>,

    #[command(flatten)]
    access: AccessArgs,
}

/// The server, and the format in which its response is printed.
#[derive(Debug, Clone, Args)]
pub struct ViewArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Credentials, headers and TLS settings.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessArgs {
    /// HTTP client configuration file, in the format of Prometheus: basic_auth, authorization,
    /// tls_config, http_headers
    #[arg(
        long = "http.config.file",
        value_name = "FILE",
        conflicts_with = "token_file"
    )]
    http_config_file: Option<PathBuf>,

    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Header to send; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,

    /// PEM file of the trusted certificate authorities for https, instead of the operating system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Accept any certificate for https; an attacker in between can read and change everything
    #[arg(long, conflicts_with = "ca_file")]
    insecure_skip_verify: bool,
}

impl ServerArgs {
    /// Returns the server, if one is given.
    pub(crate) fn given(&self) -> Option<&Url> {
        self.server.as_ref().or(self.url.as_ref())
    }

    /// Returns the server, or the default one.
    pub(crate) fn url(&self) -> Url {
        self.given().cloned().unwrap_or_else(default_url)
    }

    /// Creates a client of the server. Its queries do not count as uses of what they read.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub(crate) fn client(&self) -> Result<Client> {
        self.access.client(&self.url())
    }

    /// Creates a client of the server for queries of a user, which count as uses.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub(crate) fn query_client(&self) -> Result<Client> {
        self.access.client_as(&self.url(), QUERY_AGENT)
    }
}

impl RuleFilesArgs {
    /// Returns the files.
    ///
    /// # Errors
    /// If there is none, or one of them is a server.
    pub(crate) fn files(&self) -> Result<&[PathBuf]> {
        let files = match &*self.server_and_files {
            [first, files @ ..] if is_server(first) => files,
            files => files,
        };
        ensure!(
            !files.is_empty(),
            "this is the server, and the files are missing"
        );
        if let Some(second) = files.iter().find(|file| is_server(file)) {
            bail!("{}: the server is the first argument", second.display());
        }
        Ok(files)
    }

    /// Creates a client of the server. Its queries do not count as uses of what they read.
    ///
    /// # Errors
    /// If two servers are given, or a file cannot be read or is invalid.
    pub(crate) fn client(&self) -> Result<Client> {
        let first = self.server_and_files.first().filter(|path| is_server(path));
        let first = first
            .and_then(|path| path.to_str())
            .map(Url::parse)
            .transpose()
            .map_err(Error::msg)?;
        ensure!(
            first.is_none() || self.url.is_none(),
            "the server is the first argument or --url, not both"
        );
        let given = first.or_else(|| self.url.clone());
        self.access.client(&given.unwrap_or_else(default_url))
    }
}

impl AccessArgs {
    /// Creates a client of a server. Its queries do not count as uses of what they read.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub(crate) fn client(&self, url: &Url) -> Result<Client> {
        self.client_as(url, TOOLS_AGENT)
    }

    fn client_as(&self, url: &Url, user_agent: &'static str) -> Result<Client> {
        let Self {
            http_config_file,
            token_file,
            headers,
            ..
        } = self;
        let mut access = match http_config_file {
            Some(path) => Access::read(path)?,
            None => Access::with_token_file(token_file.as_deref())?,
        };
        headers
            .iter()
            .try_for_each(|(name, value)| access.add_header(name, value))?;
        self.connect(url, access, user_agent)
    }

    /// Creates a client of another server, with these TLS settings and the bearer token of a file,
    /// if any.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub(crate) fn client_of(&self, url: &Url, token_file: Option<&Path>) -> Result<Client> {
        self.connect(url, Access::with_token_file(token_file)?, TOOLS_AGENT)
    }

    fn connect(&self, url: &Url, access: Access, user_agent: &'static str) -> Result<Client> {
        let options = ClientOptions {
            timeout: TIMEOUT,
            response_size_max: RESPONSE_SIZE_MAX,
            user_agent,
            remedies: remedies(url),
        };
        Client::new(
            url,
            access.trusting(self.ca_file.clone(), self.insecure_skip_verify),
            options,
        )
    }
}

/// Returns the hints that end the errors of connections to a server.
fn remedies(url: &Url) -> Remedies {
    Remedies {
        connect: if *url == default_url() {
            "the default; SERVER or --url names another server"
        } else {
            ""
        },
        unknown_issuer: "--ca-file names a file with the authority to trust",
    }
}

/// Accepts an argument behind a server, unless it looks like one: then the argument is missing, or
/// before the server.
pub(crate) fn not_a_server(text: &str) -> Result<String, String> {
    path_not_a_server(PathBuf::from(text))?;
    Ok(text.to_owned())
}

/// Accepts a path beside a server, like [`not_a_server`].
pub(crate) fn path_not_a_server(path: PathBuf) -> Result<PathBuf, String> {
    if is_server(&path) {
        return Err("this is a server, which comes first: SERVER, then the argument".to_owned());
    }
    Ok(path)
}

/// Returns `true` if an argument looks like a server.
fn is_server(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.starts_with(b"http://") || bytes.starts_with(b"https://")
}

fn default_url() -> Url {
    Url::parse(DEFAULT).expect("the default is a URL")
}

/// Splits `name=value`, or `name:value`, which promtool accepts too.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(['=', ':'])
        .ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_server_is_said_to_be_the_default() {
        assert!(remedies(&default_url()).connect.contains("SERVER"));
        let other = Url::parse("http://127.0.0.1:9899").unwrap();
        assert_eq!(remedies(&other).connect, "");
    }
}
