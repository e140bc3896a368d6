//! The state of an open store, shared by [`Db`](crate::Db), running selections and background
//! tasks.

mod store;

mod append_exemplars;
mod compaction;
pub(crate) mod family_table;
mod flush;
mod flushing;
mod import;
pub(crate) mod import_writer;
mod newest;
mod ranking;
mod retention;
mod snapshot;
mod symbol_ranks;

pub use flushing::FlushStats;
pub(crate) use store::Store;
