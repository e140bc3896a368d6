//! The thread that syncs the WAL every second.
//!
//! It also commits records left behind by requests that failed halfway.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::store::Store;

/// Interval between syncs. A power cut loses at most the samples of one interval under
/// [`WalSync::Interval`](crate::WalSync::Interval).
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Syncs all logs until it is dropped, and once more on drop.
#[derive(Debug)]
pub(crate) struct WalSyncTask {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WalSyncTask {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the operating system cannot create a thread.
    pub(crate) fn start(store: Arc<Store>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(SYNC_INTERVAL) {
                sync_all(&store);
            }
            sync_all(&store);
        };
        let thread = Builder::new().name("varve-sync".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for WalSyncTask {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing; if it panicked, there is nothing left to do.
            let _panicked = thread.join();
        }
    }
}

fn sync_all(store: &Store) {
    for log in &store.logs {
        let wal = log.wal();
        // Requests report failures: the next append retries on a full disk, and a failed sync has been logged and fails
        // every later append.
        let _reported = wal.commit(wal.end()).and_then(|()| wal.sync());
    }
}
