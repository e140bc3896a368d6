//! The permissions of bearer tokens.

use serde::Deserialize;

/// A permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading data and state.
    Read,
    /// Writing samples.
    Write,
    /// Administration.
    Admin,
}
