//! A request between its connection and its handler: authorization, admission, the blocking thread,
//! the response body.

pub(crate) mod app;
pub(crate) mod authorize;
pub(crate) mod complete;
pub(crate) mod compression;
pub(crate) mod cors;
mod gate;
mod inline;
pub(crate) mod log_limiter;
pub(crate) mod metrics;
pub(crate) mod observe;
mod origin;
mod output;
mod probe;
pub(crate) mod redirect;
pub(crate) mod request_body;
mod response_body;
mod response_writer;
pub(crate) mod route_prefix;
pub(crate) mod run;
pub(crate) mod scope;
pub(crate) mod singleflight;
pub(crate) mod slow_clients;
pub(crate) mod state;
