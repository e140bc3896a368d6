//! The endpoints, grouped as in docs/http_api.md, and the table of them.

mod admin;
#[cfg(test)]
mod docs_page;
mod document;
pub(super) mod endpoint;
mod export;
mod federate;
pub(crate) mod listing;
pub(crate) mod query;
pub(crate) mod remote_read;
pub(super) mod routes;
pub mod rules;
mod scraping;
mod search;
mod selector_union;
pub mod status;
pub(crate) mod write;
