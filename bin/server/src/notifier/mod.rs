//! Notifier: sends alerts of rules to Alertmanagers.
//!
//! ```text
//! enqueue: external labels -> relabel -> JSON -> one queue per Alertmanager -> delivery (a task): batch -> POST, one retry
//! discovery (a task): files and DNS names -> targets -> relabel -> Alertmanagers
//! ```
//!
//! Used by rule evaluation ([`Notifier::enqueue`]), the reload of the configuration and the shutdown.
//! Works as in Prometheus, with three differences: an Alertmanager keeps its queue over a reload
//! that changes its settings, a failed batch is sent a second time, and the queue is also bounded
//! in bytes.
//!
//! Invariants
//! 1. `enqueue` never waits for an Alertmanager. A full queue drops its oldest alerts and counts them.
//! 2. Alerts of one Alertmanager are sent in order. One Alertmanager never delays another.
//! 3. A queued alert is counted as sent or as dropped. One that is left when its delivery ends is
//!    only logged.
//!
//! Threads: one task for discovery, which ends when the notifier is drained, and one per
//! Alertmanager. The latter ends after the notifier is drained or a reload removes its
//! Alertmanager: at once, or with `drain_on_shutdown` when its queue is sent, at most
//! `drain_time_max` later.

mod alert;
mod delivery;
mod discovery;
mod metrics;
mod queue;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::Notify;
use varve_config::file::Config;
use varve_config::file::alerting::{AlertmanagerConfig, TargetGroup};
use varve_config::settings::NotifierOptions;
use varve_ingest::relabel::Relabeling;
use varve_system::metrics::Registrar;

pub(crate) use alert::OutgoingAlert;

use delivery::{Delivery, DeliverySettings};
use discovery::{Discovery, Source};
use metrics::NotifierMetrics;

/// Sends alerts to all Alertmanagers.
#[derive(Debug)]
pub struct Notifier {
    options: NotifierOptions,
    metrics: NotifierMetrics,
    state: RwLock<State>,
    /// Wakes the discovery after a reload.
    reloaded: Notify,
}

/// The configuration in force, and the Alertmanagers that follow from it.
#[derive(Debug, Default)]
struct State {
    external_labels: BTreeMap<String, String>,
    /// Applied to all alerts.
    alert_relabeling: Relabeling,
    sets: Vec<AlertmanagerSet>,
    /// Deliveries to removed Alertmanagers, which end as [`Delivery::close`] says.
    closing: Vec<Arc<Delivery>>,
    is_discovering: bool,
    is_stopped: bool,
}

/// The Alertmanagers of one entry of `alerting.alertmanagers`.
#[derive(Debug)]
struct AlertmanagerSet {
    config: Arc<AlertmanagerConfig>,
    target_relabeling: Relabeling,
    /// Applied after that of all alerts.
    alert_relabeling: Option<Relabeling>,
    discoveries: Vec<Discovery>,
    deliveries: Vec<Arc<Delivery>>,
    /// URLs of the targets that a relabel rule dropped.
    dropped: Vec<String>,
}

/// A checked configuration that is not in force yet.
#[derive(Debug)]
pub struct PreparedAlerting(State);

impl Notifier {
    /// Creates a notifier without Alertmanagers.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(options: NotifierOptions, registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        let metrics = NotifierMetrics::new(registrar)?;
        metrics.queue_capacity.set(options.queue_capacity as i64);
        Ok(Self {
            options,
            metrics,
            state: RwLock::default(),
            reloaded: Notify::new(),
        })
    }

    /// Reads and checks everything that `config` needs. Blocks.
    ///
    /// # Errors
    /// A relabel rule, a certificate or a file with credentials is invalid.
    pub fn prepare(config: &Config) -> Result<PreparedAlerting> {
        let sets = config
            .alerting
            .alertmanagers
            .iter()
            .enumerate()
            .map(|(idx, config)| {
                AlertmanagerSet::new(config)
                    .with_context(|| format!("alerting.alertmanagers[{idx}]"))
            });
        Ok(PreparedAlerting(State {
            external_labels: config.global.external_labels.clone(),
            alert_relabeling: config.alerting.alert_relabeling()?,
            sets: sets.collect::<Result<_>>()?,
            ..State::default()
        }))
    }

    /// Puts a configuration into force. Alertmanagers that remain keep their queues. Deliveries to
    /// removed ones end: with `drain_on_shutdown` after sending their queues, otherwise at once.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn apply(self: &Arc<Self>, PreparedAlerting(mut next): PreparedAlerting) {
        let mut state = self.state.write();
        if state.is_stopped {
            return;
        }
        let mut old_sets = std::mem::take(&mut state.sets);
        let mut deliveries: Vec<_> = old_sets
            .iter_mut()
            .flat_map(|set| set.deliveries.drain(..))
            .collect();
        for set in &mut next.sets {
            for discovery in &mut set.discoveries {
                let mut known = old_sets.iter().flat_map(|set| &set.discoveries);
                if let Some(known) = known.find(|known| known.source == discovery.source) {
                    discovery.groups.clone_from(&known.groups);
                }
            }
            self.update(set, &mut deliveries);
        }
        let has_sources = next.sets.iter().any(|set| !set.discoveries.is_empty());
        next.is_discovering = state.is_discovering || has_sources;
        if next.is_discovering && !state.is_discovering {
            tokio::spawn(Arc::clone(self).discover());
        }
        next.closing = std::mem::take(&mut state.closing);
        *state = next;
        self.close(&mut state, deliveries);
        self.reloaded.notify_one();
    }

    /// Queues alerts for all Alertmanagers. Returns at once.
    pub(crate) fn enqueue(&self, alerts: Vec<OutgoingAlert>) {
        let state = self.state.read();
        if state.sets.is_empty() {
            return;
        }
        let labeled = alerts.into_iter().filter_map(|alert| {
            let labels = alert.labels_with(&state.external_labels);
            alert.relabeled(labels, &state.alert_relabeling)
        });
        let alerts: Vec<OutgoingAlert> = labeled.collect();
        let mut encoded = None;
        for set in &state.sets {
            match &set.alert_relabeling {
                None => set.push(encoded.get_or_insert_with(|| {
                    alerts.iter().map(OutgoingAlert::encode).collect::<Vec<_>>()
                })),
                Some(relabeling) => {
                    let relabeled = alerts.iter().filter_map(|alert| {
                        alert.clone().relabeled(alert.labels.clone(), relabeling)
                    });
                    set.push(&relabeled.map(|alert| alert.encode()).collect::<Vec<_>>());
                }
            }
        }
    }

    /// Returns the URLs of the Alertmanagers, and of the targets that relabel rules dropped.
    pub fn alertmanagers(&self) -> (Vec<String>, Vec<String>) {
        let state = self.state.read();
        let active = state
            .sets
            .iter()
            .flat_map(|set| &set.deliveries)
            .map(|delivery| delivery.url().to_owned());
        (
            active.collect(),
            state
                .sets
                .iter()
                .flat_map(|set| &set.dropped)
                .cloned()
                .collect(),
        )
    }

    /// Stops the notifier. If `drain_on_shutdown` is set, sends queued alerts within
    /// `drain_time_max`. Drops the rest.
    pub async fn drain(&self) {
        let deliveries = {
            let mut state = self.state.write();
            state.is_stopped = true;
            let deliveries = state
                .sets
                .iter_mut()
                .flat_map(|set| set.deliveries.drain(..))
                .collect();
            self.close(&mut state, deliveries);
            std::mem::take(&mut state.closing)
        };
        let all_ended = async {
            for delivery in &deliveries {
                delivery.ended().await;
            }
        };
        // Deliveries end in time, unless one has panicked.
        drop(tokio::time::timeout(2 * self.options.drain_time_max, all_ended).await);
    }

    /// Lets the deliveries of removed Alertmanagers end.
    fn close(&self, state: &mut State, deliveries: Vec<Arc<Delivery>>) {
        for delivery in &deliveries {
            delivery.close();
        }
        state.closing.extend(deliveries);
        state.closing.retain(|delivery| !delivery.is_ended());
        self.metrics.discovered.set(
            state
                .sets
                .iter()
                .map(|set| set.deliveries.len())
                .sum::<usize>() as i64,
        );
    }

    /// Derives the deliveries of a set from its targets. Takes those of known Alertmanagers out of
    /// `deliveries`, and creates the others.
    fn update(&self, set: &mut AlertmanagerSet, deliveries: &mut Vec<Arc<Delivery>>) {
        let targets = target::find(&set.config, &set.target_relabeling, set.groups());
        let settings = DeliverySettings {
            config: Arc::clone(&set.config),
            options: self.options,
        };
        set.dropped = targets.dropped;
        set.deliveries = targets
            .active
            .into_iter()
            .map(
                |url| match deliveries.iter().position(|delivery| delivery.url() == url) {
                    Some(known) => {
                        let delivery = deliveries.swap_remove(known);
                        delivery.set(settings.clone());
                        delivery
                    }
                    None => Delivery::start(url, settings.clone(), self.metrics.clone()),
                },
            )
            .collect();
    }

    /// Refreshes each source when it is due, until the notifier is drained.
    async fn discover(self: Arc<Self>) {
        while !self.state.read().is_stopped {
            for source in self.due_sources() {
                match source.find().await {
                    Ok(groups) => self.found(&source, &groups),
                    Err(error) => {
                        tracing::warn!(
                            ?source,
                            error = format!("{error:#}"),
                            "Discovery of Alertmanagers failed"
                        );
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(discovery::INTERVAL) => {}
                () = self.reloaded.notified() => {}
            }
        }
    }

    /// Returns the sources that are due.
    fn due_sources(&self) -> Vec<Source> {
        let mut state = self.state.write();
        let discoveries = state.sets.iter_mut().flat_map(|set| &mut set.discoveries);
        discoveries.filter_map(Discovery::take_due).collect()
    }

    /// Sets the targets that a source has found.
    fn found(&self, source: &Source, groups: &[TargetGroup]) {
        let mut state = self.state.write();
        if state.is_stopped {
            return;
        }
        let mut removed = Vec::new();
        for set in &mut state.sets {
            let mut changed = set
                .discoveries
                .iter_mut()
                .filter(|known| known.source == *source && known.groups != groups);
            if let Some(changed) = changed.next() {
                changed.groups = groups.to_vec();
                let mut deliveries = std::mem::take(&mut set.deliveries);
                self.update(set, &mut deliveries);
                removed.extend(deliveries);
            }
        }
        self.close(&mut state, removed);
    }
}

impl AlertmanagerSet {
    fn new(config: &AlertmanagerConfig) -> Result<Self> {
        config.check_access()?;
        Ok(Self {
            target_relabeling: config.target_relabeling()?,
            alert_relabeling: config.alert_relabeling()?,
            discoveries: Discovery::all(config),
            config: Arc::new(config.clone()),
            deliveries: Vec::new(),
            dropped: Vec::new(),
        })
    }

    fn groups(&self) -> impl Iterator<Item = &TargetGroup> {
        self.config.static_configs.iter().chain(
            self.discoveries
                .iter()
                .flat_map(|discovery| &discovery.groups),
        )
    }

    fn push(&self, alerts: &[Bytes]) {
        for delivery in &self.deliveries {
            delivery.push(alerts);
        }
    }
}

#[cfg(test)]
mod tests;
