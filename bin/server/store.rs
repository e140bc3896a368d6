//! The open store, with the receiver of writes and the query engine.

use std::path::Path;
use std::sync::Arc;

use varve_ingest::ha::Elections;
use varve_ingest::relabel::{DisabledByUse, DisabledRules};
use varve_ingest::{LoadOutcome, Receiver};
use varve_query::promql::ast::Expr;
use varve_query::usage::{self, LabelSet, SelectorUse};
use varve_query::{Engine, EngineOptions};
use varve_tsdb::fs::{Clock, RealFs, SystemClock};
use varve_tsdb::{Db, Matcher, Options, QueryContext};

use super::usage::{Requester, Usage};
use crate::config::Config;
use crate::promql_text;

/// The store that requests use.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) db: Arc<Db>,
    pub(crate) receiver: Receiver,
    pub(crate) engine: Engine,
    pub(crate) usage: Usage,
    /// The leaders of HA pairs.
    pub(crate) elections: Arc<Elections>,
    lookback_delta_ms: i64,
}

/// Options of a [`Store`].
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub(crate) tsdb: Options,
    pub(crate) ingest: varve_ingest::Limits,
    /// The initial configuration. [`Store::reload`] changes it later.
    pub(crate) config: Config,
    pub(crate) engine: EngineOptions,
}

impl Store {
    /// Opens a data directory. Returns when the series of its WAL are known.
    ///
    /// # Errors
    /// The errors of [`Db::open`].
    pub(crate) fn open(path: &Path, options: StoreOptions) -> anyhow::Result<Self> {
        let db = Arc::new(Db::open(path, options.tsdb)?);
        let lookback_delta_ms = options.engine.lookback_delta_ms;
        // The open database holds the lock of the directory.
        let usage = Usage::open(path);
        let (elections, found) = Elections::open(Arc::new(RealFs), path.join("ha"));
        report(found, "HA pairs", "leaders are elected again");
        let elections = Arc::new(elections);
        let (disabled_rules, found) = DisabledRules::open(Arc::new(RealFs), path.join("disabled-rules"));
        report(found, "rules disabled by use", "all rules are enabled again");
        let receiver = Receiver::new(Arc::clone(&db), options.ingest).with_disabled_rules(disabled_rules);
        let engine = Engine::new(options.engine);
        let store = Self { db, receiver, engine, usage, elections, lookback_delta_ms };
        store.reload(&options.config)?;
        Ok(store)
    }

    /// Records the uses of a query.
    pub(crate) fn note_query(&self, ctx: &QueryContext, who: &Requester, expr: &Expr) {
        self.note(ctx, who, &usage::of(expr));
    }

    /// Records the selectors of a metadata request, and the labels that it shows.
    pub(crate) fn note_selectors(
        &self,
        ctx: &QueryContext,
        who: &Requester,
        selectors: &[Vec<Matcher>],
        labels: &LabelSet,
    ) {
        let used = |matchers: &Vec<Matcher>| SelectorUse { matchers: matchers.clone(), labels: labels.clone() };
        self.note(ctx, who, &selectors.iter().map(used).collect::<Vec<_>>());
    }

    /// Records uses, and disables rules that drop the selected series if they have `disable_on_use`. Reads of Varve's
    /// own tools do not count.
    fn note(&self, ctx: &QueryContext, who: &Requester, selectors: &[SelectorUse]) {
        if who.is_tool() || selectors.is_empty() {
            return;
        }
        // Regular expressions are compiled within the limits of the request. If that fails, so does the request.
        let mut matchers = selectors.iter().flat_map(|used| &used.matchers);
        if matchers.try_for_each(|matcher| matcher.compile(ctx)).is_err() {
            return;
        }
        self.usage.note(who, selectors);
        for SelectorUse { matchers, .. } in selectors {
            let by = || DisabledByUse {
                at_ms: SystemClock.now_ms(),
                selector: promql_text::selector(matchers),
                who: who.to_string(),
            };
            for rule in self.receiver.note_use(matchers, by) {
                let (selector, who) = (promql_text::selector(matchers), who.to_string());
                tracing::warn!(rule, selector, who, "Rule disabled because a query used series that it drops");
            }
        }
    }

    /// Applies the sections `ingest` and `otlp` of a configuration. Active requests continue with the old one. Other
    /// sections are applied at start only.
    ///
    /// # Errors
    /// If the configuration is invalid. Nothing has changed then.
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

/// Logs that a state file cannot be used, and the consequence.
fn report(found: LoadOutcome, of: &str, outcome: &str) {
    match found {
        LoadOutcome::Valid => {}
        LoadOutcome::NewerVersion(version) => {
            tracing::warn!(
                version,
                "The file of {of} is of a newer version; it stays unchanged, new state is not saved, and {outcome}"
            );
        }
        LoadOutcome::Damaged(reason) => {
            tracing::error!(reason, "The file of {of} cannot be read; it is renamed, and {outcome}");
        }
    }
}
