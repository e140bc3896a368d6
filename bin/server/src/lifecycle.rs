//! The phase of a server, and the store while it is open.
//!
//! Invariant: the store is present from [`Lifecycle::open`] to [`Lifecycle::take_store`]. Before
//! and after, requests for data get 503.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::store::Store;

/// The phase of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The store is not open yet.
    Starting,
    /// Requests for data are served.
    Open,
    /// Further requests are rejected. Those that run still have the store.
    Stopping,
}

/// The phase of a server and its store.
#[derive(Debug)]
pub struct Lifecycle {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    store: Option<Arc<Store>>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                phase: Phase::Starting,
                store: None,
            }),
        }
    }
}

impl Lifecycle {
    /// Begins to serve requests for data.
    pub(crate) fn open(&self, store: Arc<Store>) {
        *self.state.write() = State {
            phase: Phase::Open,
            store: Some(store),
        };
    }

    /// Rejects further requests with 503.
    pub fn begin_shutdown(&self) {
        self.state.write().phase = Phase::Stopping;
    }

    /// Removes the store, to close it.
    pub fn take_store(&self) -> Option<Arc<Store>> {
        self.state.write().store.take()
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        self.state.read().phase
    }

    /// Returns the store, or `None` before it is open and after [`Lifecycle::take_store`].
    pub fn store(&self) -> Option<Arc<Store>> {
        self.state.read().store.clone()
    }
}
