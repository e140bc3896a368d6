//! The fleet of `varve bench`, for benches: labels and values of any series without a server in between.

#[allow(dead_code, unused_imports, reason = "a bench uses of it what it needs")]
#[path = "../../bin/bench/fleet/mod.rs"]
mod generator;

pub(crate) use generator::{Fleet, FleetOptions, SeriesId};
