//! The open store with the two ways into it: writes and queries.

use std::path::Path;
use std::sync::Arc;

use varve_ingest::ha::Elections;
use varve_ingest::relabel::{Fallen, FallenRules};
use varve_ingest::{Receiver, StateFound};
use varve_query::promql::ast::Expr;
use varve_query::usage::{self, LabelSet, SelectorUse};
use varve_query::{Engine, EngineOptions};
use varve_tsdb::fs::{Clock, RealFs, SystemClock};
use varve_tsdb::{Db, Matcher, Options};

use super::usage::{Requester, Usage};
use crate::config::Config;
use crate::promql_text;

/// What requests work on.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) db: Arc<Db>,
    pub(crate) receiver: Receiver,
    pub(crate) engine: Engine,
    pub(crate) usage: Usage,
    /// Who leads HA pairs.
    pub(crate) elections: Arc<Elections>,
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
        let lookback_delta_ms = options.engine.lookback_delta_ms;
        // Only now is it certain that the directory is ours.
        let usage = Usage::open(path);
        let (elections, found) = Elections::open(Arc::new(RealFs), path.join("ha"));
        report(found, "HA pairs", "leaders are elected anew");
        let elections = Arc::new(elections);
        let (fallen, found) = FallenRules::open(Arc::new(RealFs), path.join("fallen"));
        report(found, "rules that fell back to shadow", "they are armed anew");
        let receiver = Receiver::new(Arc::clone(&db), options.ingest).keeping(fallen);
        let engine = Engine::new(options.engine);
        let store = Self { db, receiver, engine, usage, elections, lookback_delta_ms };
        store.reload(&options.config)?;
        Ok(store)
    }

    /// Notes what a query uses.
    pub(crate) fn note_query(&self, who: &Requester, expr: &Expr) {
        self.note(who, &usage::of(expr));
    }

    /// Notes what a call about series or labels selects, and which labels it shows.
    pub(crate) fn note_selectors(&self, who: &Requester, selectors: &[Vec<Matcher>], labels: &LabelSet) {
        let used = |matchers: &Vec<Matcher>| SelectorUse { matchers: matchers.clone(), labels: labels.clone() };
        self.note(who, &selectors.iter().map(used).collect::<Vec<_>>());
    }

    /// Notes a use, and lets rules fall back that drop what is asked for. Our own tools look at everything, which is none.
    fn note(&self, who: &Requester, selectors: &[SelectorUse]) {
        if who.is_tool() || selectors.is_empty() {
            return;
        }
        self.usage.note(who, selectors);
        for SelectorUse { matchers, .. } in selectors {
            let fallen = || Fallen {
                at_ms: SystemClock.now_ms(),
                selector: promql_text::selector(matchers),
                who: who.to_string(),
            };
            for rule in self.receiver.note_asked(matchers, fallen) {
                let (selector, who) = (promql_text::selector(matchers), who.to_string());
                tracing::warn!(rule, selector, who, "A rule that drops what is asked for falls back to shadow");
            }
        }
    }

    /// Puts into force what a configuration says of ingestion: sections `ingest` and `otlp`. Requests at work end under the
    /// old one. The other sections have an effect at a start only.
    ///
    /// # Errors
    /// What is wrong with the configuration; nothing has changed then.
    pub(crate) fn reload(&self, config: &Config) -> anyhow::Result<()> {
        let (otlp, rules) = (config.otlp.settings(self.lookback_delta_ms)?, config.ingest.rules()?);
        let (budgets, ha) = (config.ingest.budgets()?, config.ingest.ha()?);
        self.receiver.set_budgets(budgets);
        self.receiver.set_otlp(otlp);
        self.receiver.set_rules(rules);
        self.receiver.set_ha(ha, &self.elections);
        Ok(())
    }
}

/// Tells of a file that is not taken, and of what comes of that.
fn report(found: StateFound, of: &str, outcome: &str) {
    match found {
        StateFound::Sound => {}
        StateFound::Newer(version) => {
            tracing::warn!(
                version,
                "The file of {of} is of a newer version; it is left as it is, nothing is kept, and {outcome}"
            );
        }
        StateFound::Damaged(reason) => {
            tracing::error!(reason, "The file of {of} cannot be read; it is kept aside, and {outcome}");
        }
    }
}
