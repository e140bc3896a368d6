//! Waiting for a log whose disk is full.
//!
//! A file system does not report free space: only a successful write does. So one waiter at a time
//! retries the write every [`RETRY_INTERVAL`], and wakes the others when it succeeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use varve_tsdb::{Db, Error};

use crate::error::WriteError;

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Admits requests while the log accepts appends.
#[derive(Debug)]
pub(super) struct LogGate {
    db: Arc<Db>,
    retrying: Mutex<()>,
    writable: Condvar,
}

impl LogGate {
    pub(super) fn new(db: Arc<Db>) -> Self {
        Self {
            db,
            retrying: Mutex::default(),
            writable: Condvar::new(),
        }
    }

    /// Waits until the log accepts appends.
    ///
    /// # Errors
    /// [`WriteError::Store`] if the disk is still full at the deadline, or if the log has failed
    /// permanently.
    pub(super) fn pass_until(&self, deadline: Instant) -> Result<(), WriteError> {
        // Fast path: no write has failed.
        if let Ok(()) = self.db.ready() {
            return Ok(());
        }
        let mut retrying = self.retrying.lock();
        loop {
            match self.db.ready() {
                Err(Error::Io { .. }) if Instant::now() < deadline => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.writable
                        .wait_for(&mut retrying, RETRY_INTERVAL.min(left));
                }
                ready => {
                    self.writable.notify_all();
                    return Ok(ready?);
                }
            }
        }
    }
}
