//! The signals that end the process, and the one that makes it read its configuration again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// The end, by the signal of this name.
    End(&'static str),
    /// To read the configuration again.
    Reload,
}

/// SIGTERM, SIGINT and SIGHUP, caught from when this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to catch the signals.
    ///
    /// # Errors
    /// If the operating system refuses the handler.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received::End("SIGTERM"),
            _ = self.interrupt.recv() => Received::End("SIGINT"),
            _ = self.hangup.recv() => Received::Reload,
        }
    }

    /// Waits for the next of those that end the process, and returns its name.
    pub(crate) async fn next_end(&mut self) -> &'static str {
        loop {
            if let Received::End(name) = self.next().await {
                return name;
            }
        }
    }
}
