//! Responses of the HTTP API that the tools read.
//!
//! All other responses are defined beside their endpoints.

pub mod advice;
pub mod backtest;
pub mod churn;
pub mod explain;
