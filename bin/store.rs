//! The open store with the two ways into it: writes and queries.

use std::path::Path;
use std::sync::Arc;

use varve_ingest::{OtlpSettings, Receiver};
use varve_query::{Engine, EngineOptions};
use varve_tsdb::{Db, Options, Result};

use crate::usage::Usage;

/// What requests work on.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) db: Arc<Db>,
    pub(crate) receiver: Receiver,
    pub(crate) engine: Engine,
    pub(crate) usage: Usage,
}

/// What a [`Store`] is opened with.
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub(crate) tsdb: Options,
    pub(crate) ingest: varve_ingest::Limits,
    pub(crate) otlp: OtlpSettings,
    pub(crate) engine: EngineOptions,
}

impl Store {
    /// Opens a data directory; takes as long as it takes to know the series of its log.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub(crate) fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        let db = Arc::new(Db::open(path, options.tsdb)?);
        let receiver = Receiver::new(Arc::clone(&db), options.ingest);
        receiver.set_otlp(options.otlp);
        // Only now is it certain that the directory is ours.
        let usage = Usage::open(path);
        Ok(Self { db, receiver, engine: Engine::new(options.engine), usage })
    }
}
