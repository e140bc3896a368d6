//! A queried server.

use anyhow::{Context, Result};
use varve_client::{Client, encode_form};

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
            .post_form(path, &encode_form(params))
            .context("query error")?;
        match response.status {
            403 | 405 | 501 => self.get(path, params),
            _ => Data::parse(&response).context("query error"),
        }
    }

    pub(super) fn get(&mut self, path: &str, params: &[(&str, String)]) -> Result<Data> {
        let response = self
            .0
            .get(&format!("{path}?{}", encode_form(params)))
            .context("query error")?;
        Data::parse(&response).context("query error")
    }
}
