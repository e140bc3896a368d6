//! A request between its connection and its handler: authorization, admission, the blocking thread, the response body.

pub(crate) mod authorize;
pub(crate) mod body;
pub(crate) mod compression;
pub(crate) mod cors;
pub(crate) mod gate;
pub(crate) mod housekeeping;
pub(crate) mod log_limiter;
pub(crate) mod redirect;
pub(crate) mod request_body;
pub(crate) mod run;
pub(crate) mod singleflight;
