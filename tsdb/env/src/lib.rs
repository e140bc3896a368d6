//! The environment of a store: file system and clock. Nothing else reaches either, so that tests
//! can make them fail.
//!
//! A store uses the traits [`Fs`] and [`Clock`]. [`RealFs`] is the operating system's file system,
//! [`ReadOnlyFs`] a read-only view of one. `MemFs` is a disk in memory that fails at any chosen
//! operation and loses in a power cut whatever a disk may lose. [`StateFile`] is a kind of small
//! file that is replaced as a whole. A [`DamageReport`](damage::DamageReport) lists the parts of
//! files that cannot be read, [`SampleTotals`](sample_totals::SampleTotals) tell what became of the
//! samples that a reader found. A [`SteadyClock`](steady_clock::SteadyClock) does not accept sudden
//! jumps of the wall clock.
//!
//! This crate knows neither the layout of a data directory nor the contents of its files.

#![forbid(unsafe_code)]

mod backup;
mod clock;
pub mod damage;
mod error;
mod fs;
#[cfg(any(test, feature = "testing"))]
mod manual_clock;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod read_only;
mod real;
pub mod sample_totals;
mod state_file;
pub mod steady_clock;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod volume;

pub use backup::save_original;
pub use clock::{Clock, SystemClock};
pub use error::{Error, is_out_of_files};
pub use fs::{
    AppendFile, Fs, Lock, ReadFile, create_dir_durably, list_if_exists, remove_if_exists,
    replace_file, size_of_file, size_of_files,
};
pub use read_only::ReadOnlyFs;
pub use real::RealFs;
pub use state_file::{Loaded, StateFile, StateFileError};
