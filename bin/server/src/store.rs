//! The open store, with the receiver of writes and the query engine.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve_advise::usage::{Requester, Usage};
use varve_config::file::Config;
use varve_config::settings::{Retention, StoreOptions};
use varve_env::{Clock, RealFs, StateFileError, SystemClock};
use varve_ingest::Receiver;
use varve_ingest::ha::Elections;
use varve_ingest::relabel::{
    DisabledByUse, DisabledRelabelRules, DroppingRelabelRule, UsedRelabelRule,
};
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher, TimeRange};
use varve_promql::print_matchers;
use varve_query::Engine;
use varve_query::usage::{LabelSet, SelectorUse};
use varve_tsdb::retention::RetentionRule;
use varve_tsdb::{Db, Error, ReadContext};

/// The store that requests use.
#[derive(Debug)]
pub struct Store {
    /// The storage engine.
    pub db: Arc<Db>,
    /// The write path.
    pub receiver: Receiver,
    /// The query engine.
    pub engine: Engine,
    /// The usage record.
    pub usage: Usage,
    /// The leaders of HA pairs.
    pub elections: Arc<Elections>,
    lookback_delta_ms: i64,
    /// Whether OTLP deltas are added up.
    delta_to_cumulative: bool,
    /// How late an OTLP delta may be.
    late_delta_max: Duration,
    /// The data directory.
    path: PathBuf,
}

/// The files of the data directory with the state that is not in the WAL.
const STATE_FILES: [&str; 3] = [USAGE_FILE, HA_FILE, DISABLED_RULES_FILE];
const USAGE_FILE: &str = "usage";
const HA_FILE: &str = "ha";
const DISABLED_RULES_FILE: &str = "disabled-rules";
/// The file of a snapshot with the configuration in force.
const CONFIG_FILE: &str = "config.yml";

impl Store {
    /// Opens a data directory. Returns when the series of its WAL are known.
    /// [`Reloader::open_store`](crate::reload::Reloader::open_store) applies the configuration.
    ///
    /// # Errors
    /// The errors of [`Db::open`].
    pub fn open(path: &Path, options: StoreOptions) -> anyhow::Result<Self> {
        let db = Arc::new(Db::open(path, options.tsdb)?);
        let lookback_delta_ms = options.engine.lookback_delta_ms;
        let delta_to_cumulative = options.delta_to_cumulative;
        let late_delta_max = options.late_delta_max;
        // The open database holds the lock of the directory.
        let (usage, found) = Usage::open(
            Arc::new(RealFs),
            path.join(USAGE_FILE),
            SystemClock.now_ms(),
        );
        report(found, "the usage record", "a new record starts");
        let (elections, found) = Elections::open(Arc::new(RealFs), path.join(HA_FILE));
        report(found, "HA pairs", "leaders are elected again");
        let elections = Arc::new(elections);
        let (disabled_rules, found) =
            DisabledRelabelRules::open(Arc::new(RealFs), path.join(DISABLED_RULES_FILE));
        report(
            found,
            "relabel rules disabled by use",
            "all relabel rules are enabled again",
        );
        let receiver = Receiver::new(Arc::clone(&db), options.ingest)
            .with_disabled_relabel_rules(disabled_rules);
        let engine = Engine::new(options.engine);
        let path = path.to_owned();
        Ok(Self {
            db,
            receiver,
            engine,
            usage,
            elections,
            lookback_delta_ms,
            delta_to_cumulative,
            late_delta_max,
            path,
        })
    }

    /// Records the selectors of a request for metadata or exemplars, and the labels that it shows.
    /// It disables no relabel rules: users browse metrics and labels without needing their samples.
    pub fn note_metadata(
        &self,
        ctx: &ReadContext,
        who: &Requester,
        selectors: &[Vec<Matcher>],
        labels: &LabelSet,
    ) {
        self.note_without_samples(ctx, who, &uses(selectors, labels));
    }

    /// Records the uses of a query whose response has no samples. It disables no relabel rules.
    pub fn note_without_samples(
        &self,
        ctx: &ReadContext,
        who: &Requester,
        selectors: &[SelectorUse],
    ) {
        self.record(ctx, who, selectors);
    }

    /// Records the selectors of a request for samples without an expression.
    pub fn note_selectors(&self, ctx: &ReadContext, who: &Requester, selectors: &[Vec<Matcher>]) {
        self.note_query(ctx, who, &uses(selectors, &LabelSet::all()));
    }

    /// Records the uses of a query, and disables relabel rules that drop the selected series if they
    /// have `disable_on_use`. A query of a tenant uses only series that the tenant may read. Reads
    /// of Varve's own tools do not count.
    pub fn note_query(&self, ctx: &ReadContext, who: &Requester, selectors: &[SelectorUse]) {
        if !self.record(ctx, who, selectors) {
            return;
        }
        for SelectorUse { matchers, .. } in selectors {
            let used = self.receiver.note_use(ctx, matchers, || DisabledByUse {
                at_ms: SystemClock.now_ms(),
                selector: print_matchers(matchers),
                who: who.to_string(),
            });
            // As in `record`: if this fails, so does the request.
            let Ok(rules) = used else {
                return;
            };
            for UsedRelabelRule {
                name: rule,
                is_disabled,
            } in rules
            {
                let selector = print_matchers(matchers);
                let who = who.to_string();
                if is_disabled {
                    tracing::warn!(
                        rule,
                        selector,
                        who,
                        "Relabel rule disabled because a query used series that it drops"
                    );
                } else {
                    tracing::info!(
                        rule,
                        selector,
                        who,
                        "Relabel rule in dry run would have been disabled by a query"
                    );
                }
            }
        }
    }

    /// Adds uses to the usage record. Returns `false` if they do not count.
    fn record(&self, ctx: &ReadContext, who: &Requester, selectors: &[SelectorUse]) -> bool {
        if who.is_tool() || selectors.is_empty() {
            return false;
        }
        // Regular expressions are compiled within the limits of the request. If that fails, so does
        // the request.
        let mut matchers = selectors.iter().flat_map(|used| &used.matchers);
        if matchers
            .try_for_each(|matcher| matcher.compile(ctx))
            .is_err()
        {
            return false;
        }
        let now_ms = SystemClock.now_ms();
        if ctx.restriction().is_empty() {
            self.usage.note(who, selectors, now_ms);
            return true;
        }
        // What a tenant reads depends on the labels of its matchers as well.
        let mut restricted = selectors.to_vec();
        for used in &mut restricted {
            used.matchers.extend_from_slice(ctx.restriction());
        }
        self.usage.note(who, &restricted, now_ms);
        true
    }

    /// Returns an info for each relabel rule that drops the series of a query without a result at
    /// `end_ms`. Considers the selectors with a metric name that have no recent samples then. Returns
    /// at most [`DROPPED_INFOS_MAX`] infos.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub fn dropped_infos(
        &self,
        ctx: &ReadContext,
        selectors: &[SelectorUse],
        end_ms: i64,
    ) -> varve_tsdb::Result<Vec<String>> {
        // Samples from before the relabel rule was enforced may be older.
        let recent = TimeRange {
            start_ms: end_ms.saturating_sub(self.lookback_delta_ms),
            end_ms,
        };
        let mut infos = Vec::new();
        for SelectorUse { matchers, .. } in selectors {
            let rules = self.receiver.relabel_rules_dropping(ctx, matchers)?;
            if rules.is_empty()
                || self
                    .db
                    .select_first_labels(ctx, matchers, recent, 1)?
                    .next()
                    .is_some()
            {
                continue;
            }
            let name = matchers
                .iter()
                .find(|matcher| matcher.name() == METRIC_NAME);
            for info in rules.iter().map(|rule| dropped_info(name, rule)) {
                if infos.len() < DROPPED_INFOS_MAX && !infos.contains(&info) {
                    infos.push(info);
                }
            }
            if infos.len() == DROPPED_INFOS_MAX {
                break;
            }
        }
        Ok(infos)
    }

    /// Saves the state that is not in the WAL. A failure is logged, and the next call repeats the
    /// write.
    pub fn save(&self) {
        for (what, saved) in [
            ("the usage record", self.usage.save()),
            ("the leaders of HA pairs", self.elections.save()),
            (
                "which rules are disabled by use",
                self.receiver.disabled_relabel_rules().save(),
            ),
        ] {
            if let Err(error) = saved {
                tracing::error!(%error, "Cannot save {what}; retrying later");
            }
        }
    }

    /// Creates a snapshot of the store, with the state that is not in the WAL, and the
    /// configuration in force.
    ///
    /// # Errors
    /// The errors of [`Db::snapshot`], and if a file cannot be written. A partially created
    /// directory stays.
    pub fn snapshot(&self, name: &str, skip_head: bool, config: &Config) -> varve_tsdb::Result<()> {
        let dir = self.db.snapshot(name, skip_head)?;
        self.save();
        for file in STATE_FILES {
            let from = self.path.join(file);
            let to = dir.join(file);
            match std::fs::copy(&from, &to).and_then(|_| File::open(&to)?.sync_all()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("copy", &from)(error));
                }
                _copied_or_not_there => {}
            }
        }
        let path = dir.join(CONFIG_FILE);
        // It fails only if the working directory is unknown.
        let config = config
            .self_contained()
            .map_err(Error::io("resolve", Path::new(".")))?;
        std::fs::write(&path, config.to_yaml())
            .and_then(|()| File::open(&path)?.sync_all())
            .and_then(|()| File::open(&dir)?.sync_all())
            .map_err(Error::io("write", &path))
    }

    /// Applies the sections `ingest` and `otlp` of a configuration. Active requests continue with
    /// the old one.
    ///
    /// # Errors
    /// If the configuration is invalid. Nothing has changed then.
    pub(crate) fn reload(&self, config: &Config) -> anyhow::Result<()> {
        let otlp = config.otlp.settings(
            self.lookback_delta_ms,
            self.delta_to_cumulative,
            self.late_delta_max,
        )?;
        let relabeling = config.ingest.relabeling()?;
        let has_rule_files = !config.rule_files.is_empty();
        let budgets = if has_rule_files {
            config.ingest.budgets_with_rules()?
        } else {
            config.ingest.budgets()?
        };
        let ha = config.ingest.ha()?;
        self.receiver.set_budgets(budgets);
        self.receiver.set_otlp(otlp);
        self.receiver.set_relabeling(relabeling);
        self.receiver.set_ha(ha, &self.elections);
        if let Some(warning) = config.ingest.team_warning() {
            tracing::info!("{warning}");
        }
        Ok(())
    }

    /// Replaces the retention of all series, and the retention rules for some of them.
    pub(crate) fn set_retention(&self, retention: Retention, rules: Vec<RetentionRule>) {
        let time_ms = i64::try_from(retention.time.as_millis()).ok();
        let time_ms = time_ms.filter(|&ms| ms > 0);
        self.db
            .set_retention(time_ms, retention.size_limit(), rules);
    }
}

/// Returns the uses of selectors that show some labels.
fn uses(selectors: &[Vec<Matcher>], labels: &LabelSet) -> Vec<SelectorUse> {
    let mut uses = Vec::with_capacity(selectors.len());
    for matchers in selectors {
        uses.push(SelectorUse {
            matchers: matchers.clone(),
            labels: labels.clone(),
        });
    }
    uses
}

fn dropped_info(
    metric: Option<&Matcher>,
    DroppingRelabelRule { name, is_disabled }: &DroppingRelabelRule,
) -> String {
    let pattern = metric.map_or("", Matcher::value);
    let is_name = metric.is_none_or(|matcher| matcher.op() == MatchOp::Equal);
    let metric = if is_name {
        format!("metric {pattern:?}")
    } else {
        format!("a metric of {pattern:?}")
    };
    if *is_disabled {
        format!(
            "{metric} was dropped by relabel rule {name:?} until a query disabled the rule; new samples are stored"
        )
    } else {
        format!("{metric} is dropped by relabel rule {name:?}")
    }
}

/// Maximum number of infos about dropped metrics in a response.
const DROPPED_INFOS_MAX: usize = 10;

/// Logs that a state file cannot be used, and the consequence.
fn report(found: Result<(), StateFileError>, what: &str, consequence: &str) {
    let Err(error) = found else { return };
    let kept = match error {
        StateFileError::Damaged(_) => "it is renamed",
        StateFileError::Newer(_)
        | StateFileError::Unreadable(_)
        | StateFileError::NotRenamed(_) => "it stays unchanged, new state is not saved",
    };
    tracing::error!(%error, "The file of {what} cannot be used: {kept}, and {consequence}");
}
