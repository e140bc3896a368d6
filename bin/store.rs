//! The open store with the two ways into it: writes and queries.

use std::path::Path;
use std::sync::Arc;

use varve_ingest::Receiver;
use varve_query::{Engine, EngineOptions};
use varve_tsdb::{Db, Options};

use crate::config::Config;
use crate::usage::Usage;

/// What requests work on.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) db: Arc<Db>,
    pub(crate) receiver: Receiver,
    pub(crate) engine: Engine,
    pub(crate) usage: Usage,
    lookback_delta_ms: i64,
}

/// What a [`Store`] is opened with.
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub(crate) tsdb: Options,
    pub(crate) ingest: varve_ingest::Limits,
    /// What the configuration says of ingestion; [`Store::reload`] changes it later.
    pub(crate) config: Config,
    pub(crate) engine: EngineOptions,
}

impl Store {
    /// Opens a data directory; takes as long as it takes to know the series of its log.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub(crate) fn open(path: &Path, options: StoreOptions) -> anyhow::Result<Self> {
        let db = Arc::new(Db::open(path, options.tsdb)?);
        let receiver = Receiver::new(Arc::clone(&db), options.ingest);
        let lookback_delta_ms = options.engine.lookback_delta_ms;
        // Only now is it certain that the directory is ours.
        let usage = Usage::open(path);
        let store = Self { db, receiver, engine: Engine::new(options.engine), usage, lookback_delta_ms };
        store.reload(&options.config)?;
        Ok(store)
    }

    /// Puts into force what a configuration says of ingestion: sections `ingest` and `otlp`. Requests at work end under the
    /// old one. The other sections have an effect at a start only.
    ///
    /// # Errors
    /// What is wrong with the configuration; nothing has changed then.
    pub(crate) fn reload(&self, config: &Config) -> anyhow::Result<()> {
        let (otlp, rules) = (config.otlp.settings(self.lookback_delta_ms)?, config.ingest.rules()?);
        self.receiver.set_budgets(config.ingest.budgets()?);
        self.receiver.set_otlp(otlp);
        self.receiver.set_rules(rules);
        Ok(())
    }
}
