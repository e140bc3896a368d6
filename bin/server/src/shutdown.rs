//! Signals that end the process, and the signal to reload the configuration.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// A request to stop the server.
#[derive(Debug, Default)]
pub struct Quit {
    is_requested: AtomicBool,
    notify: Notify,
}

impl Quit {
    /// Requests the end. Returns `false` if it was requested before.
    pub fn request(&self) -> bool {
        let is_first = !self.is_requested.swap(true, Ordering::AcqRel);
        // The permit is kept for a later waiter.
        self.notify.notify_one();
        is_first
    }

    /// Waits until the end is requested.
    pub async fn requested(&self) {
        self.notify.notified().await;
    }
}

/// A received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// SIGTERM or SIGINT, by name.
    End(&'static str),
    /// SIGHUP: reload the configuration.
    Reload,
}

/// Signals within this time are one.
const ONE_SIGNAL: Duration = Duration::from_secs(1);
/// SIGXFSZ, the same on all supported systems: a file would exceed RLIMIT_FSIZE.
const FILE_SIZE_EXCEEDED: i32 = 25;

/// Handlers of SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers. A write beyond RLIMIT_FSIZE no longer ends the process, but fails
    /// like a write on a full disk.
    ///
    /// # Errors
    /// If the operating system rejects a handler.
    pub fn catch() -> io::Result<Self> {
        drop(signal(SignalKind::from_raw(FILE_SIZE_EXCEEDED))?);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received::End("SIGTERM"),
            _ = self.interrupt.recv() => Received::End("SIGINT"),
            _ = self.hangup.recv() => Received::Reload,
        }
    }

    /// Waits for a signal that ends the process at once, after the one that began its shutdown, and
    /// returns its name. `timeout` signals the process and then its group: what arrives within
    /// [`ONE_SIGNAL`] is the same signal.
    pub async fn next_end(&mut self) -> &'static str {
        let began = Instant::now();
        loop {
            if let Received::End(name) = self.next().await
                && began.elapsed() >= ONE_SIGNAL
            {
                return name;
            }
        }
    }
}
