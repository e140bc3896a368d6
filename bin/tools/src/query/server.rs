//! A queried server.

use anyhow::{Context, Result};
use varve_client::{Client, escape};

use super::response::Data;
use crate::server_args::ServerArgs;

/// A queried server.
pub(super) struct Server(Client);

impl Server {
    pub(super) fn new(args: &ServerArgs) -> Result<Self> {
        args.query_client()
            .context("error creating API client")
            .map(Self)
    }

    /// Sends a POST request, as queries may be long, or a GET request if the server does not allow
    /// POST.
    pub(super) fn post(&mut self, path: &str, params: &[(&str, String)]) -> Result<Data> {
        let response = self
            .0
            .post_form(path, &encode(params))
            .context("query error")?;
        match response.status {
            403 | 405 | 501 => self.get(path, params),
            _ => Data::parse(&response).context("query error"),
        }
    }

    pub(super) fn get(&mut self, path: &str, params: &[(&str, String)]) -> Result<Data> {
        let response = self
            .0
            .get(&format!("{path}?{}", encode(params)))
            .context("query error")?;
        Data::parse(&response).context("query error")
    }
}

fn encode(params: &[(&str, String)]) -> String {
    let pairs = params
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        assert_eq!(
            encode(&[("match[]", "{a=\"b c\"}".to_owned())]),
            "match%5B%5D=%7Ba%3D%22b%20c%22%7D"
        );
    }
}
