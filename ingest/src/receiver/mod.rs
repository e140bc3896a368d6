//! From a request body to samples in the store, and the outcome for the sender.

pub(crate) mod buffers;
pub(crate) mod stats;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use varve_tsdb::{Db, Labels, Matcher, Sample, SeriesHandle};

use crate::admission::memory::{Admission, Permit};
use crate::admission::semaphore::Turns;
use crate::admission::{Budgets, Door, Ledger, Origin, Team, TeamStatus};
use crate::append::{Outgoing, Source, append};
use crate::batch::{BatchBuilder, DecodedBatch, HistogramEntry, RouteHasher, SeriesEntry, Symbol, Version};
use crate::compression::Compression;
use crate::error::WriteError;
use crate::ha::{Elections, Ha, HaSettings, Standing};
use crate::limits::Limits;
use crate::otlp::{self, OtlpSettings};
use crate::outcome::{Rejects, Written};
use crate::relabel::{Fallen, FallenRules, RuleStats, Rules, Ruling};
use crate::remote_write::{snappy, v1, v2};
use crate::request::{Context, Request};
use crate::route::{RouteCache, Scope};
use buffers::{Passage, Scratch, ScratchPool};
use stats::{Counters, Stats};

/// Accepts write requests for a store. Shared by all request threads.
#[derive(Debug)]
pub struct Receiver {
    db: Arc<Db>,
    limits: Limits,
    hasher: RouteHasher,
    routes: RouteCache,
    admission: Admission,
    door: Door,
    /// Turns to decode: as many as there are cores. Of many requests that come at once the first would be done no sooner
    /// if all were decoded side by side, and one of known series would be among the last.
    decoding: Turns,
    scratch: ScratchPool,
    counters: Counters,
    otlp: RwLock<Arc<OtlpSettings>>,
    ruling: RwLock<Arc<Ruling>>,
    /// Locked before the rules in force are changed.
    fallen: FallenRules,
    ha: RwLock<Option<Arc<Ha>>>,
}

impl Receiver {
    /// Makes a receiver that writes to `db`.
    ///
    /// # Panics
    /// As [`RouteHasher::new`].
    #[must_use]
    pub fn new(db: Arc<Db>, limits: Limits) -> Self {
        Self {
            door: Door::new(Ledger::new(Arc::clone(&db)), &limits),
            db,
            limits,
            hasher: RouteHasher::new(),
            routes: RouteCache::new(limits.route_cache_size_max),
            admission: Admission::new(limits.bytes_in_flight_max),
            decoding: Turns::new(std::thread::available_parallelism().map_or(1, usize::from), 0, 0),
            scratch: ScratchPool::default(),
            counters: Counters::default(),
            otlp: RwLock::default(),
            ruling: RwLock::new(Arc::new(Ruling::new(Rules::default(), 0))),
            fallen: FallenRules::default(),
            ha: RwLock::default(),
        }
    }

    /// Keeps there which armed rules have fallen back to shadow. Comes before the first rules.
    #[must_use]
    pub fn keeping(self, fallen: FallenRules) -> Self {
        Self { fallen, ..self }
    }

    /// Returns which armed rules have fallen back to shadow.
    #[must_use]
    pub fn fallen(&self) -> &FallenRules {
        &self.fallen
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read(self.routes.stats(), self.admission.in_flight(), self.door.turns.stats())
    }

    /// Writes a remote-write request: a snappy block that holds the version's message. On return what is not in
    /// [`Written::rejects`] is in the store's log.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, origin: &Origin<'_>, version: Version, body: &[u8]) -> Result<Written, WriteError> {
        let outcome = self.scratch.with(|scratch| self.receive(origin, version, body, scratch));
        self.counters.note(body.len(), &outcome);
        outcome
    }

    /// Writes an OTLP export request of metrics in protobuf, compressed or not.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_otlp(
        &self,
        origin: &Origin<'_>,
        compression: Compression,
        body: &[u8],
    ) -> Result<Written, WriteError> {
        let outcome = self.scratch.with(|scratch| self.receive_otlp(origin, compression, body, scratch));
        self.counters.note(body.len(), &outcome);
        outcome
    }

    /// Puts other rules into force, for series that are known too. Requests at work end under the rules that they began
    /// with. Cost: each series is resolved again when it comes next. Waits for the disk if other rules have fallen than before.
    pub fn set_rules(&self, rules: Rules) {
        let mut fallen = self.fallen.lock();
        fallen.restore(&rules);
        let rules = self.change_ruling(|ruling| Ruling::new(rules, ruling.generation.wrapping_add(1)));
        fallen.keep(&rules);
    }

    /// Lets the armed rules fall back to shadow that have dropped what a selector may ask for, for series that are known
    /// too. Returns their names; none is returned twice. Waits for the disk if there are any.
    pub fn note_asked(&self, matchers: &[Matcher], fallen: impl Fn() -> Fallen) -> Vec<String> {
        let fell = self.ruling().rules.fall_back(matchers, fallen);
        if !fell.is_empty() {
            let mut fallen = self.fallen.lock();
            let rules = self.change_ruling(|ruling| ruling.anew());
            fallen.keep(&rules);
        }
        fell
    }

    /// Changes the rules in force and returns them.
    fn change_ruling(&self, change: impl FnOnce(&Ruling) -> Ruling) -> Arc<Rules> {
        let mut ruling = self.ruling.write().unwrap_or_else(PoisonError::into_inner);
        *ruling = Arc::new(change(&ruling));
        let rules = Arc::clone(&ruling.rules);
        drop(ruling);
        self.routes.clear();
        rules
    }

    /// Puts other settings of HA pairs into force, or none, for series that are known too; who leads comes from `elections`.
    pub fn set_ha(&self, settings: Option<HaSettings>, elections: &Arc<Elections>) {
        let ha = settings.map(|settings| Arc::new(Ha::new(settings, Arc::clone(elections))));
        *self.ha.write().unwrap_or_else(PoisonError::into_inner) = ha;
    }

    /// Returns what each rule has done since it was put into force.
    #[must_use]
    pub fn rule_stats(&self) -> Vec<RuleStats> {
        let ruling = self.ruling();
        ruling.verdicts.stats(&ruling.rules)
    }

    /// Puts other budgets into force, for series that are there too. Cost: with another label for teams each series is
    /// looked at once here, and resolved again when it comes next.
    pub fn set_budgets(&self, budgets: Budgets) {
        self.door.ledger.set(budgets);
    }

    /// Tells how all teams together stand, and each of them, by name.
    #[must_use]
    pub fn team_stats(&self) -> (TeamStatus, Vec<TeamStatus>) {
        self.door.ledger.status()
    }

    fn ruling(&self) -> Arc<Ruling> {
        Arc::clone(&self.ruling.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets how OTLP is translated from now on.
    pub fn set_otlp(&self, settings: OtlpSettings) {
        *self.otlp.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn receive_otlp(
        &self,
        origin: &Origin<'_>,
        compression: Compression,
        body: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Written, WriteError> {
        self.limits.check_body(body.len())?;
        let mut permit = self.enter(origin, body.len(), body.len())?;
        let settings = Arc::clone(&self.otlp.read().unwrap_or_else(PoisonError::into_inner));
        let message = compression.decompress(body, &self.limits, &mut permit)?;
        let Scratch { message: text, batch, passage } = scratch;
        let mut rejects = Rejects::default();
        let mut composer = self.composer(batch, text, &mut permit);
        otlp::translate(&message, &settings, &mut composer, &mut rejects)?;
        self.store(origin, (text, batch), permit, rejects, passage)
    }

    /// Appends samples that the process itself has made, such as its own metrics.
    ///
    /// # Errors
    /// [`WriteError::Store`] and [`WriteError::Moved`].
    pub fn append_own<'a>(
        &self,
        samples: impl IntoIterator<Item = (&'a Labels, Sample)>,
    ) -> Result<Written, WriteError> {
        let mut out = Outgoing::default();
        let mut own = Own { db: &self.db, series: Vec::new() };
        for (tag, (labels, sample)) in (0u32..).zip(samples) {
            out.batch.push(self.db.series(labels)?, sample, tag);
            own.series.push(labels);
        }
        let mut rejects = Rejects::default();
        let samples_stored = append(&self.db, &own, &mut out, &mut rejects)?;
        Ok(Written { samples_stored, rejects, ..Written::default() })
    }

    fn receive(
        &self,
        origin: &Origin<'_>,
        version: Version,
        body: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Written, WriteError> {
        self.limits.check_body(body.len())?;
        let size = snappy::declared_size(body, &self.limits)?;
        let permit = self.enter(origin, body.len(), body.len() + size)?;
        let Scratch { message, batch, passage } = scratch;
        let first = self.door.precedence.go_first();
        // Whoever waits longer than anybody should goes on without.
        let turn = self.decoding.turn(self.door.until());
        let message = snappy::decompress(body, size, message)?;
        match version {
            Version::V1 => v1::decode(message, &self.hasher, &self.limits, batch)?,
            Version::V2 => v2::decode(message, &self.hasher, &self.limits, batch)?,
        }
        drop((turn, first));
        self.store(origin, (message, batch), permit, Rejects::default(), passage)
    }

    /// Lets a request in whose body has so many bytes, and reserves `size` bytes for it. Under overload it waits here,
    /// before anything is decompressed, and is sent away from here.
    pub(crate) fn enter(&self, origin: &Origin<'_>, body_size: usize, size: usize) -> Result<Permit<'_>, WriteError> {
        let until = self.door.until();
        self.wait_for_log(until)?;
        self.door.pass(origin, self.team(origin), body_size)?;
        self.admission.admit_until(size, until)
    }

    /// Waits for a log that has no room on its disk.
    fn wait_for_log(&self, until: Instant) -> Result<(), WriteError> {
        loop {
            match self.db.ready() {
                Err(varve_tsdb::Error::Io { .. }) if Instant::now() < until => std::thread::sleep(LOG_PAUSE),
                ready => return Ok(ready?),
            }
        }
    }

    /// Returns what requests wait for.
    #[cfg(test)]
    pub(crate) fn door(&self) -> &Door {
        &self.door
    }

    fn team(&self, origin: &Origin<'_>) -> Option<Team> {
        origin.team.map(|name| self.door.ledger.team_named(name))
    }

    /// Lends scratch to a request of another protocol.
    pub(crate) fn with_scratch<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        self.scratch.with(work)
    }

    /// Counts a request of another protocol.
    pub(crate) fn note(&self, body_size: usize, outcome: &Result<Written, WriteError>) {
        self.counters.note(body_size, outcome);
    }

    /// Begins a request of another protocol.
    pub(crate) fn composer<'a, 'p>(
        &'a self,
        batch: &'a mut DecodedBatch,
        text: &'a mut Vec<u8>,
        permit: &'a mut Permit<'p>,
    ) -> BatchBuilder<'a, 'p> {
        BatchBuilder::new(batch, text, permit, &self.hasher, &self.limits)
    }

    /// Writes a decoded request, whatever it came as.
    pub(crate) fn store(
        &self,
        origin: &Origin<'_>,
        (message, batch): (&[u8], &DecodedBatch),
        mut permit: Permit<'_>,
        rejects: Rejects,
        passage: &mut Passage,
    ) -> Result<Written, WriteError> {
        // Only now it is known what the samples take: here, and again on their way into the store.
        permit.grow(decoded_size(batch))?;
        let Passage { routes, order, outgoing } = passage;
        let ruling = &*self.ruling();
        let team = self.team(origin);
        let ha = self.ha.read().unwrap_or_else(PoisonError::into_inner).clone();
        let standing = &Standing::of(ha.as_deref(), message, batch, &self.hasher);
        let rules = ruling.generation ^ standing.salt();
        let scope = Scope::new(rules, self.door.ledger.generation(), team.unwrap_or_default());
        let is_known =
            |series: &SeriesEntry| series.key.filter(|_| standing.trusts_routes()).map(|key| key.under(scope));
        self.routes.lookup(batch.series.iter().map(is_known), routes, order);
        let Self { db, limits, routes: cache, door, .. } = self;
        let size = permit.size();
        let context = Context { db, limits, routes: cache, ruling, standing, door, origin, team, scope, size };
        Request::new(context, (message, batch), rejects).write(routes, outgoing)
    }
}

/// Samples of the process itself.
struct Own<'a> {
    db: &'a Db,
    series: Vec<&'a Labels>,
}

impl Source for Own<'_> {
    fn resolve(&self, tag: u32) -> Result<Option<SeriesHandle>, WriteError> {
        Ok(Some(self.db.series(self.series[tag as usize])?))
    }

    fn find(&self, tag: u32) -> Option<SeriesHandle> {
        self.db.find(self.series[tag as usize])
    }

    fn print(&self, tag: u32) -> String {
        self.series[tag as usize].to_string()
    }
}

/// Returns the memory that a decoded request takes, here and on its way into the store.
fn decoded_size(batch: &DecodedBatch) -> usize {
    let histograms_size: usize = batch.histograms.iter().map(histogram_size).sum();
    batch.samples.len() * DECODED_SAMPLE_SIZE
        + batch.starts.len() * DECODED_START_SIZE
        + batch.series.len() * DECODED_SERIES_SIZE
        + batch.symbols.len() * size_of::<Symbol>()
        + batch.exemplars.len() * DECODED_EXEMPLAR_SIZE
        + batch.exemplars_size
        + histograms_size
}

/// Between two looks at a log that has no room on its disk.
const LOG_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of memory for each sample: decoded, and in the store's batch.
const DECODED_SAMPLE_SIZE: usize = 16 + 32;
/// Bytes of memory for each start timestamp, likewise.
const DECODED_START_SIZE: usize = 16 + 16;
/// Bytes of memory for a histogram besides its numbers: decoded, and in the store's batch.
const DECODED_HISTOGRAM_SIZE: usize = 512;
/// Bytes of memory for each byte of a histogram's message: a bucket or a span may take one or two there, and eight in a
/// list that grows by doubling.
const DECODED_HISTOGRAM_FACTOR: usize = 16;

/// Bytes of memory for each exemplar besides those of its labels: its entry, and in the store's batch.
const DECODED_EXEMPLAR_SIZE: usize = 12 + 64;
/// Bytes of memory for each series: its entry, its route and its key in order.
const DECODED_SERIES_SIZE: usize = 32 + 16 + 20;

fn histogram_size(of: &HistogramEntry) -> usize {
    match of {
        HistogramEntry::Sent(span) => DECODED_HISTOGRAM_SIZE + span.len() * DECODED_HISTOGRAM_FACTOR,
        HistogramEntry::Made { histogram, .. } => DECODED_HISTOGRAM_SIZE + histogram.size(),
    }
}

#[cfg(test)]
mod tests;
