//! Background threads of an open store: flushing, merging and syncing the WAL.

mod tasks;
mod wal_sync;

pub(crate) use tasks::BackgroundTasks;
pub(crate) use wal_sync::WalSyncTask;
