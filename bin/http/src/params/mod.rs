//! Parameters of the API: parses query strings and forms as Go does, with the error messages of
//! Prometheus.
//!
//! A parameter may be as long as a form, so errors quote only its start ([`varve_system::excerpt::quotable`]).

mod form;
mod label_name;
mod selectors;
mod url_query;
mod values;
mod yaml;

pub(crate) use form::Form;
pub(crate) use label_name::unescape_label_name;
pub(crate) use selectors::{invalid_match, parse_selector, parse_selectors};
pub(crate) use url_query::{LongQuery, short_url_query, url_query};
pub(crate) use values::{go_reason, parse_bool, parse_int};

#[cfg(test)]
mod tests;
