//! The endpoints, grouped as in docs/http_api.md.

pub(crate) mod admin;
pub(crate) mod endpoint;
mod federate;
mod metadata;
pub(crate) mod query;
mod remote_read;
pub(crate) mod routes;
mod scraping;
mod search;
mod selector_union;
pub(crate) mod status;
pub(crate) mod write;
