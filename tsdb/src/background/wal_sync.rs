//! The thread that syncs the WAL every second.
//!
//! It also commits records left behind by requests that failed halfway.

use std::time::Duration;

use super::tasks::Stop;
use crate::store::Store;

/// Interval between syncs. A power cut loses at most the samples of one interval under
/// [`WalSync::Interval`](crate::WalSync::Interval).
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Syncs all logs at intervals, and a last time when the task is stopped.
pub(super) fn wal_sync_task(store: &Store, stop: &Stop) {
    while stop.sleep(SYNC_INTERVAL) {
        sync_all(store);
    }
    sync_all(store);
}

fn sync_all(store: &Store) {
    for log in &store.logs {
        let wal = log.wal();
        // Requests report failures: the next append retries on a full disk, and a failed sync has
        // been logged and fails every later append.
        let _reported = wal.commit(wal.end()).and_then(|()| wal.sync());
    }
}
