//! The receiver: what all write requests of a store share.
//!
//! Each source adds the method through which its requests come in (`sources/`).

pub(crate) mod stats;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use varve_context::{Charge, QueryContext};
use varve_model::{Labels, Matcher};
use varve_otlp::{DeltaStreams, OtlpSettings};
use varve_tsdb::{Db, ReadContext};

use crate::admission::{AdmissionControl, Budgets, Permit, TeamStatus};
use crate::batch::{DecodedBatch, RouteHasher};
use crate::error::WriteError;
use crate::ha::{Elections, Ha, HaSettings};
use crate::limits::Limits;
use crate::outcome::Written;
use crate::relabel::{
    ActiveRelabeling, DisabledByUse, DisabledRelabelRules, DroppingRelabelRule, EnabledRelabelRule,
    RelabelPreview, RelabelRuleState, RelabelRuleStats, Relabeling, UsedRelabelRule,
};
use crate::route::RouteCache;
use crate::sources::batch_builder::BatchBuilder;
use crate::write::buffers::{BufferPool, Buffers};
use stats::{Counters, IngestStats};

/// Accepts write requests for a store. Shared by all request threads.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) db: Arc<Db>,
    pub(crate) limits: Limits,
    pub(crate) admission: AdmissionControl,
    pub(crate) hasher: RouteHasher,
    /// Hashes the label sets of samples of rules. It has a secret of its own, so that senders do not
    /// find the routes of their series.
    pub(crate) rule_hasher: RouteHasher,
    pub(crate) routes: RouteCache,
    pub(crate) buffers: BufferPool,
    pub(crate) counters: Counters,
    pub(crate) otlp: RwLock<Arc<OtlpSettings>>,
    pub(crate) delta_streams: DeltaStreams,
    pub(crate) relabeling: RwLock<Arc<ActiveRelabeling>>,
    /// Locked before `relabeling` changes.
    pub(crate) disabled_rules: DisabledRelabelRules,
    pub(crate) ha: RwLock<Option<Arc<Ha>>>,
}

impl Receiver {
    /// Creates a receiver that writes to `db`.
    ///
    /// # Panics
    /// If [`RouteHasher::new`] panics.
    #[must_use]
    pub fn new(db: Arc<Db>, limits: Limits) -> Self {
        Self {
            admission: AdmissionControl::new(Arc::clone(&db), &limits),
            db,
            limits,
            hasher: RouteHasher::new(),
            rule_hasher: RouteHasher::new(),
            routes: RouteCache::new(limits.route_cache_size_max),
            buffers: BufferPool::new(limits.bytes_in_flight_max / POOL_SHARE),
            counters: Counters::default(),
            otlp: RwLock::default(),
            delta_streams: DeltaStreams::default(),
            relabeling: RwLock::new(Arc::new(ActiveRelabeling::new(Relabeling::default(), 0))),
            disabled_rules: DisabledRelabelRules::default(),
            ha: RwLock::default(),
        }
    }

    /// Persists disabled relabel rules in `disabled_rules`. Must be called before [`Receiver::set_relabeling`].
    #[must_use]
    pub fn with_disabled_relabel_rules(self, disabled_rules: DisabledRelabelRules) -> Self {
        Self {
            disabled_rules,
            ..self
        }
    }

    /// Returns the persisted disabled relabel rules.
    #[must_use]
    pub fn disabled_relabel_rules(&self) -> &DisabledRelabelRules {
        &self.disabled_rules
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> IngestStats {
        let mut stats = self
            .counters
            .read(self.routes.stats(), self.admission.stats());
        stats.pooled_bytes = self.buffers.size() as u64;
        stats.delta_streams = self.delta_streams.n_streams() as u64;
        stats.late_deltas = self.delta_streams.n_late();
        stats
    }

    /// Applies relabel rules, also to known series. Active requests keep the rules that they started
    /// with. Each series is resolved again with its next sample, unless the same rules are in force.
    /// Waits for the disk if the set of disabled rules changes.
    pub fn set_relabeling(&self, relabeling: Relabeling) {
        let mut disabled = self.disabled_rules.state.lock();
        let mut active = Arc::clone(&self.relabeling().relabeling);
        if !active.is_same(&relabeling) {
            disabled.restore(&relabeling);
            active = self.change_relabeling(|active| active.with_rules(relabeling));
        }
        disabled.update(&active);
    }

    /// Sets the names of the labels that matchers of tenants have. Rules remember the values of these
    /// labels when they drop a series, to find out whose query uses it. Each series is resolved
    /// again with its next sample, unless the names are the same.
    pub fn set_tenant_label_names(&self, names: &[String]) {
        // Called once a second: usually nothing has changed, and no lock is held for the disk.
        if *self.relabeling().tenant_label_names == *names {
            return;
        }
        let _disabled = self.disabled_rules.state.lock();
        self.change_relabeling(|active| active.with_tenant_label_names(names));
    }

    /// Disables the relabel rules with `disable_on_use` that have dropped series that `matchers` may
    /// select, and that the request may read. Returns the rules for which this is the first use;
    /// those in a dry run record it only. Waits for the disk if there are any.
    ///
    /// # Errors
    /// If the request `ctx` is interrupted or exceeds its memory limit.
    pub fn note_use(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        by: impl Fn() -> DisabledByUse,
    ) -> varve_tsdb::Result<Vec<UsedRelabelRule>> {
        let used = self.relabeling().relabeling.note_use(ctx, matchers, by)?;
        if !used.is_empty() {
            let mut disabled = self.disabled_rules.state.lock();
            // A rule in a dry run has the same effect after its first use.
            if used.iter().any(|rule| rule.is_disabled) {
                self.change_relabeling(ActiveRelabeling::next_generation);
            }
            disabled.update(&self.relabeling().relabeling);
        }
        Ok(used)
    }

    /// Enables a relabel rule that a query has disabled, or forgets the query that would have disabled it.
    /// Returns `None` if no rule has the name. Waits for the disk.
    pub fn enable_relabel_rule(&self, name: &str) -> Option<EnabledRelabelRule> {
        let mut disabled = self.disabled_rules.state.lock();
        let enabled = self.relabeling().relabeling.enable(name)?;
        if enabled.was_used && enabled.state == RelabelRuleState::Enforce {
            self.change_relabeling(ActiveRelabeling::next_generation);
        }
        disabled.update(&self.relabeling().relabeling);
        Some(enabled)
    }

    /// Returns the relabel rules that have dropped series that `matchers` may select: enforced rules, and
    /// those that a query has disabled. Returns none if `matchers` select metrics other than by
    /// name.
    ///
    /// # Errors
    /// If the request `ctx` is interrupted or exceeds its memory limit.
    pub fn relabel_rules_dropping(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
    ) -> varve_tsdb::Result<Vec<DroppingRelabelRule>> {
        self.relabeling().relabeling.dropping(ctx, matchers)
    }

    /// Returns the effect of the relabel rules in force on a label set, as [`Relabeling::preview`]
    /// does.
    ///
    /// # Errors
    /// The errors of [`Relabeling::preview`].
    pub fn preview_relabeling(
        &self,
        ctx: &QueryContext,
        labels: &Labels,
        charge: &mut Charge,
    ) -> varve_context::Result<RelabelPreview> {
        self.relabeling().relabeling.preview(ctx, labels, charge)
    }

    fn change_relabeling(
        &self,
        change: impl FnOnce(&ActiveRelabeling) -> ActiveRelabeling,
    ) -> Arc<Relabeling> {
        let mut active = self.relabeling.write();
        *active = Arc::new(change(&active));
        let relabeling = Arc::clone(&active.relabeling);
        drop(active);
        self.routes.clear();
        relabeling
    }

    /// Returns the number of footprints of the series that relabel rules have dropped.
    #[must_use]
    pub fn n_footprints(&self) -> usize {
        self.relabeling().relabeling.n_footprints()
    }

    /// Returns how many footprints were not remembered because of the limits, since the relabel
    /// rules were loaded.
    #[must_use]
    pub fn n_refused_footprints(&self) -> u64 {
        self.relabeling().relabeling.n_refused_footprints()
    }

    /// Returns the counts of each relabel rule since it was loaded.
    #[must_use]
    pub fn relabel_rule_stats(&self) -> Vec<RelabelRuleStats> {
        self.relabeling().stats()
    }

    /// Applies the settings of HA pairs, also to known series. `None` turns deduplication off.
    pub fn set_ha(&self, settings: Option<HaSettings>, elections: &Arc<Elections>) {
        let ha = settings.map(|settings| Arc::new(Ha::new(settings, Arc::clone(elections))));
        *self.ha.write() = ha;
    }

    /// Applies budgets, also to existing series. If the team label changes, each series is visited
    /// once during the call, and resolved again with its next sample.
    pub fn set_budgets(&self, budgets: Budgets) {
        self.admission.budgets().set(budgets);
    }

    /// Returns the status of all teams together, and of each team by name.
    #[must_use]
    pub fn team_stats(&self) -> (TeamStatus, Vec<TeamStatus>) {
        self.admission.budgets().status()
    }

    /// Returns a function that waits until at most `n_active_max` requests of known series are
    /// active, for at most a millisecond. It returns how long it waited.
    #[must_use = "it waits only when it is called"]
    pub fn yield_fn(&self, n_active_max: usize) -> impl Fn() -> Duration + Send + Sync + use<> {
        self.admission.yield_fn(n_active_max)
    }

    /// Denies all new series from now on, or no longer. Samples of known series are stored
    /// regardless. Called when the process becomes short of memory, and when this has ended.
    pub fn set_denies_new_series(&self, denies: bool) {
        self.admission.set_denies_new_series(denies);
        if denies {
            self.buffers.clear();
        }
    }

    /// Sets the translation of OTLP.
    pub fn set_otlp(&self, settings: OtlpSettings) {
        *self.otlp.write() = Arc::new(settings);
    }

    /// Returns the relabel rules in force.
    pub(crate) fn relabeling(&self) -> Arc<ActiveRelabeling> {
        Arc::clone(&self.relabeling.read())
    }

    /// Runs `write` with reused buffers and counts its outcome.
    pub(crate) fn counted(
        &self,
        body: &[u8],
        write: impl FnOnce(&mut Buffers) -> Result<Written, WriteError>,
    ) -> Result<Written, WriteError> {
        let mut buffers = self.buffers.take();
        let outcome = write(&mut buffers);
        self.buffers.give_back(buffers);
        self.counters.record(body.len(), &outcome);
        outcome
    }

    /// Starts a batch for a protocol other than remote write.
    pub(crate) fn builder<'a, 'p>(
        &'a self,
        batch: &'a mut DecodedBatch,
        encoded: &'a mut Vec<u8>,
        permit: &'a mut Permit<'p>,
    ) -> BatchBuilder<'a, 'p> {
        let memory = &mut permit.memory;
        BatchBuilder::new(batch, encoded, memory, &self.hasher, &self.limits)
    }
}

/// Unused buffers take at most 1/`POOL_SHARE` of the bytes in flight: 32 MiB by default. A request
/// of 10,000 series takes about 6 MiB.
const POOL_SHARE: usize = 16;

#[cfg(test)]
mod tests;
