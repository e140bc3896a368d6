//! The receiver stores the samples of a request body and returns the outcome for the sender.

pub(crate) mod buffers;
pub(crate) mod stats;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use varve_context::QueryContext;
use varve_model::{Labels, Matcher};
use varve_otlp::{DeltaStreams, OtlpSettings};
use varve_tsdb::Db;

use crate::admission::{AdmissionControl, Budgets, Origin, Permit, TeamStatus};
use crate::batch::{
    BatchBuilder, DecodedBatch, HistogramEntry, RouteHasher, SeriesEntry, Symbol, Version,
};
use crate::compression::Compression;
use crate::error::WriteError;
use crate::forced_labels::ForcedLabels;
use crate::ha::{Elections, Ha, HaContext, HaSettings};
use crate::limits::Limits;
use crate::outcome::{Rejections, Written};
use crate::relabel::{
    ActiveRelabeling, DisabledByUse, DisabledRelabelRules, DroppingRelabelRule, EnabledRelabelRule,
    RelabelPreview, RelabelRuleState, RelabelRuleStats, Relabeling, UsedRelabelRule,
};
use crate::route::{RouteCache, Scope};
use crate::sources::otlp::{OtlpEncoding, OtlpSink};
use crate::sources::remote_write::{label_pairs, snappy, v1, v2};
use crate::write::Request;
use crate::write::resolve::Resolver;
use buffers::{BufferPool, Buffers, RequestBuffers};
use stats::{Counters, Stats};

/// Accepts write requests for a store. Shared by all request threads.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) db: Arc<Db>,
    pub(crate) limits: Limits,
    pub(crate) admission: AdmissionControl,
    pub(crate) hasher: RouteHasher,
    /// Hashes the label sets of recorded samples. It has a secret of its own, so that senders do not
    /// find the routes of recorded series.
    pub(crate) recorded_hasher: RouteHasher,
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
            recorded_hasher: RouteHasher::new(),
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
    pub fn stats(&self) -> Stats {
        let pooled_bytes = self.buffers.size() as u64;
        Stats {
            pooled_bytes,
            delta_streams: self.delta_streams.n_streams() as u64,
            ..self
                .counters
                .read(self.routes.stats(), self.admission.stats())
        }
    }

    /// Writes a remote-write request: a snappy block with a message of `version`. On success,
    /// everything that is not in [`Written::rejects`] is in the store's log.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(
        &self,
        origin: &Origin<'_>,
        version: Version,
        body: &[u8],
    ) -> Result<Written, WriteError> {
        self.counted(
            body,
            |Buffers {
                 message,
                 batch,
                 request,
             }| {
                self.limits.check_body(body.len())?;
                let size = snappy::declared_size(body, &self.limits)?;
                let permit = self.admit(origin, body.len(), body.len() + size)?;
                let message = permit.decode(|| -> Result<_, WriteError> {
                    let message = snappy::decompress(body, size, message)?;
                    match version {
                        Version::V1 => v1::decode(message, &self.hasher, &self.limits, batch)?,
                        Version::V2 => v2::decode(message, &self.hasher, &self.limits, batch)?,
                    }
                    Ok(message)
                })?;
                self.store(permit, (message, batch), Rejections::default(), request)
            },
        )
    }

    /// Writes a `thanos.WriteRequest`. Its tenant, unless it is empty, is the team of the request,
    /// and the label `tenant_label` of each series, unless the name is empty. `read` returns the
    /// message in `body`, decompressed into a reused buffer if necessary.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_routed(
        &self,
        origin: &Origin<'_>,
        tenant_label: &str,
        body: &[u8],
        read: impl for<'a> FnOnce(&'a [u8], &'a mut Vec<u8>) -> Result<&'a [u8], WriteError>,
    ) -> Result<Written, WriteError> {
        self.counted(
            body,
            |Buffers {
                 message,
                 batch,
                 request,
             }| {
                let message = read(body, message)?;
                let tenant = Some(v1::tenant(message)?).filter(|tenant| !tenant.is_empty());
                let added_label = tenant
                    .filter(|_| !tenant_label.is_empty())
                    .map(|tenant| (tenant_label, tenant));
                let origin = Origin {
                    team: tenant.or(origin.team),
                    added_label,
                    ..*origin
                };
                let permit = self.admit(&origin, message.len(), message.len())?;
                permit.decode(|| v1::decode_routed(message, &self.hasher, &self.limits, batch))?;
                self.store(permit, (message, batch), Rejections::default(), request)
            },
        )
    }

    /// Writes an OTLP export request of metrics, compressed or not.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_otlp(
        &self,
        origin: &Origin<'_>,
        (encoding, compression): (OtlpEncoding, Compression),
        body: &[u8],
    ) -> Result<Written, WriteError> {
        self.counted(
            body,
            |Buffers {
                 message: encoded,
                 batch,
                 request,
             }| {
                self.limits.check_body(body.len())?;
                let mut permit = self.admit(origin, body.len(), body.len())?;
                let settings = Arc::clone(&self.otlp.read());
                let mut message = compression.decompress(body, &self.limits, &mut permit.memory)?;
                if encoding == OtlpEncoding::Json {
                    let check_size = |size| self.limits.check_decompressed(size as u64);
                    message = varve_otlp::transcode(&message, &check_size, &mut |size| {
                        permit.memory.grow(size)
                    })?;
                }
                let mut sink = OtlpSink {
                    batch: self.builder(batch, encoded, &mut permit),
                    rejections: Rejections::default(),
                };
                varve_otlp::translate(&message, &settings, &self.delta_streams, &mut sink)?;
                let rejections = sink.rejections;
                self.store(permit, (encoded, batch), rejections, request)
            },
        )
    }

    /// Applies relabel rules, also to known series. Active requests keep the rules that they started
    /// with. Each series is resolved again with its next sample, unless the same rules are in force.
    /// Waits for the disk if the set of disabled rules changes.
    pub fn set_relabeling(&self, relabeling: Relabeling) {
        let mut disabled = self.disabled_rules.state.lock();
        let mut active = Arc::clone(&self.relabeling().relabeling);
        if !active.is_same(&relabeling) {
            disabled.restore(&relabeling);
            active = self.change_relabeling(|active| {
                ActiveRelabeling::new(relabeling, active.generation.wrapping_add(1))
            });
        }
        disabled.update(&active);
    }

    /// Disables the relabel rules with `disable_on_use` that have dropped series that `matchers` may
    /// select. Returns the rules for which this is the first use; those in a dry run record it
    /// only. Waits for the disk if there are any.
    ///
    /// # Errors
    /// If the request `ctx` is interrupted or exceeds its memory limit.
    pub fn note_use(
        &self,
        ctx: &QueryContext,
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
        ctx: &QueryContext,
        matchers: &[Matcher],
    ) -> varve_tsdb::Result<Vec<DroppingRelabelRule>> {
        self.relabeling().relabeling.dropping(ctx, matchers)
    }

    /// Returns the effect of the relabel rules in force on a label set, as [`Relabeling::preview`] does.
    ///
    /// # Errors
    /// The errors of `charge`.
    pub fn preview_relabeling<E>(
        &self,
        labels: &Labels,
        charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<RelabelPreview, E> {
        self.relabeling().relabeling.preview(labels, charge)
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
    pub fn refuse_new_series(&self, refuses: bool) {
        self.admission.refuse_new_series(refuses);
        if refuses {
            self.buffers.clear();
        }
    }

    /// Sets the translation of OTLP.
    pub fn set_otlp(&self, settings: OtlpSettings) {
        *self.otlp.write() = Arc::new(settings);
    }

    fn relabeling(&self) -> Arc<ActiveRelabeling> {
        Arc::clone(&self.relabeling.read())
    }

    /// Runs `write` with reused buffers and counts its outcome.
    pub(crate) fn counted(
        &self,
        body: &[u8],
        write: impl FnOnce(&mut Buffers) -> Result<Written, WriteError>,
    ) -> Result<Written, WriteError> {
        let outcome = self.buffers.with(write);
        self.counters.record(body.len(), &outcome);
        outcome
    }

    /// See [`AdmissionControl::admit`].
    pub(crate) fn admit<'a>(
        &'a self,
        origin: &Origin<'a>,
        body_size: usize,
        size: usize,
    ) -> Result<Permit<'a>, WriteError> {
        self.admission.admit(origin, body_size, size)
    }

    /// Starts a batch for a protocol other than remote write.
    pub(crate) fn builder<'a, 'p>(
        &'a self,
        batch: &'a mut DecodedBatch,
        encoded: &'a mut Vec<u8>,
        permit: &'a mut Permit<'p>,
    ) -> BatchBuilder<'a, 'p> {
        BatchBuilder::new(
            batch,
            encoded,
            &mut permit.memory,
            &self.hasher,
            &self.limits,
        )
    }

    /// Stores a decoded request of any protocol.
    pub(crate) fn store(
        &self,
        mut permit: Permit<'_>,
        (message, batch): (&[u8], &DecodedBatch),
        rejections: Rejections,
        buffers: &mut RequestBuffers,
    ) -> Result<Written, WriteError> {
        permit.memory.grow(decoded_size(batch))?;
        let RequestBuffers {
            routes,
            order,
            outgoing,
        } = buffers;
        let relabeling = &*self.relabeling();
        let forced = ForcedLabels::new(permit.added_label, permit.labels, &self.hasher);
        let ha = self.ha.read().clone();
        let first = batch
            .series
            .first()
            .map(|first| forced.add_all(label_pairs(batch, message, first.labels)));
        let ha = &HaContext::new(ha.as_deref(), || forced.print(), first, &self.hasher);
        let (team, budgets) = (permit.team(), self.admission.budgets());
        let scope = Scope::new(
            relabeling.generation ^ ha.salt(),
            budgets.generation(),
            team.unwrap_or_default(),
        );
        let key = |series: &SeriesEntry| {
            series
                .key
                .filter(|_| ha.uses_route_cache())
                .map(|key| forced.key(key).under(scope))
        };
        self.routes
            .lookup(batch.series.iter().map(key), routes, order);
        let resolver = Resolver {
            db: &self.db,
            limits: &self.limits,
            cache: &self.routes,
            relabeling,
            ha,
            budgets,
            team,
            scope,
            forced: &forced,
            message,
            batch,
            strings: RefCell::default(),
            new_routes: RefCell::default(),
        };
        Request::new(resolver, permit, rejections).write(routes, outgoing)
    }
}

/// Returns the bytes of memory of a decoded request: `batch`, and the batch for the store.
fn decoded_size(batch: &DecodedBatch) -> usize {
    let histograms_size: usize = batch.histograms.iter().map(histogram_size).sum();
    batch.samples.len() * DECODED_SAMPLE_SIZE
        + batch.start_timestamps.len() * DECODED_START_SIZE
        + batch.series.len() * DECODED_SERIES_SIZE
        + batch.symbols.len() * size_of::<Symbol>()
        + batch.exemplars.len() * DECODED_EXEMPLAR_SIZE
        + batch.exemplars_size
        + histograms_size
}

fn histogram_size(entry: &HistogramEntry) -> usize {
    match entry {
        HistogramEntry::Encoded(span) => {
            DECODED_HISTOGRAM_SIZE + span.len() * DECODED_HISTOGRAM_FACTOR
        }
        HistogramEntry::Decoded { histogram, .. } => DECODED_HISTOGRAM_SIZE + histogram.size(),
    }
}

/// Unused buffers take at most 1/`POOL_SHARE` of the bytes in flight: 32 MiB by default. A request
/// of 10,000 series takes about 6 MiB.
const POOL_SHARE: usize = 16;
/// Bytes of memory of a sample: decoded, plus in the batch for the store.
const DECODED_SAMPLE_SIZE: usize = 16 + 32;
/// Bytes of memory of a start timestamp.
const DECODED_START_SIZE: usize = 16 + 16;
/// Bytes of memory of a histogram besides its buckets.
const DECODED_HISTOGRAM_SIZE: usize = 512;
/// Bytes of memory for each byte of an encoded histogram: an encoded bucket or span may have one or
/// two bytes, but takes eight in a list that grows by doubling.
const DECODED_HISTOGRAM_FACTOR: usize = 16;
/// Bytes of memory of an exemplar besides its labels.
const DECODED_EXEMPLAR_SIZE: usize = 12 + 64;
/// Bytes of memory of a series: its entry, its route and its key.
const DECODED_SERIES_SIZE: usize = 32 + 16 + 20;

#[cfg(test)]
mod tests;
