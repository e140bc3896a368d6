//! `varve bench`: a made-up fleet, written to any server by remote write, read back, asked
//! about as dashboards ask, and put through servers side by side.
//!
//! Everything here is a client: it knows a server by its HTTP API, its process id and its files only. It runs on plain
//! threads, one a connection.

mod args;
mod calibrate;
mod compare;
mod fleet;
mod message;
mod mixed;
mod peer;
mod query;
mod unbounded;
mod verify;
mod write;

pub(crate) use args::{BenchCommand, FleetCommand};
pub(crate) use calibrate::calibrate;
pub(crate) use compare::compare;
pub(crate) use mixed::mixed;
pub(crate) use query::query;
pub(crate) use unbounded::unbounded;
pub(crate) use verify::verify;
pub(crate) use write::write;
