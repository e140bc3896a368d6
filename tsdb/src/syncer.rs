//! The thread that syncs the logs every second, and commits what a request that failed half-way has left behind.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::store::Store;

/// How much time of samples a power cut may cost under [`WalSync::Interval`](crate::WalSync::Interval).
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Syncs all logs until it is dropped, and once more then.
#[derive(Debug)]
pub(crate) struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the operating system has no thread left.
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

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread only logs; if it panicked, there is nothing left to do for it.
            let _panicked = thread.join();
        }
    }
}

fn sync_all(store: &Store) {
    for log in &store.logs {
        let wal = log.wal();
        // A failure is the business of the requests: a full disk is tried again by the next append, and a failed sync
        // has been logged and will be told to every writer.
        let _refused = wal.commit(wal.end()).and_then(|()| wal.sync());
    }
}
