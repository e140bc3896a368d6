//! Reload, termination, profiles, and administration of the store.
//!
//! The requests below /api/v1/admin are enabled by `--web.enable-admin-api`. They have no deadline
//! and run to their end even if the client disconnects. Each is logged with its sender and its
//! outcome.

pub(crate) mod admin_relabel;
pub(crate) mod admin_tsdb;
pub(crate) mod admin_usage;
pub(crate) mod lifecycle;
pub(crate) mod profile;
pub(crate) mod request;
