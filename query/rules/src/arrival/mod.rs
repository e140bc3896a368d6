//! Arrival of data: finds out when all samples up to an evaluation time have arrived.
//!
//! Each sender reports its progress with every request: the oldest and the newest timestamp. They
//! yield its newest sample, its arrival lag, and the interval at which it sends newer samples.
//! Reasons: docs/decisions/rules/0017-rules-wait-for-data.md.
//!
//! A sender has delivered time `t` if
//! 1. it has sent a sample at `t` or later, or its next sample is due after `t`: at `t`, its newest
//!    sample is younger than its usual interval;
//! 2. its usual arrival lag (p99) has passed since `t`, because other connections of the sender may
//!    be slower. The backlog of a sender that starts or returns says nothing about its usual lag.
//!
//! A sender that is silent for two intervals, of the group or its own, does not count.

mod quantile;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::time::Time;
use quantile::Quantiles;

/// Maximum number of observed senders. Above it, the sender that has been silent longest is
/// evicted.
pub const SENDERS_MAX: usize = 1_000;
/// A request whose oldest sample is older than this refills a gap. It says nothing about the usual
/// lag.
const LAG_MAX: Duration = Duration::from_secs(60);
/// A sender that was silent for longer than this, and for two of its intervals, has a backlog when
/// it returns.
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// A longer pause between newest samples is an outage. It says nothing about the usual interval.
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// Number of intervals after which a silent sender does not count.
const SILENT_INTERVALS: u32 = 2;
/// A sender whose newest sample is at most this much older than its usual lag has no backlog.
const BACKLOG_MAX: Duration = Duration::from_secs(30);

/// The progress and the arrival lags of all senders.
#[derive(Debug, Default)]
pub struct Lags {
    by_name: Mutex<HashMap<Arc<str>, SenderLag>>,
}

/// The progress of one sender, and how late its samples arrive.
#[derive(Debug, Clone)]
struct SenderLag {
    newest: Time,
    last_arrival: Time,
    /// When it began to send, or came back after its last pause.
    resumed: Time,
    /// When it last sent samples from before `resumed`. Samples up to this time may have waited
    /// behind its backlog.
    backlog_until: Time,
    lags: Quantiles,
    /// Differences between successive newest timestamps, each weighted by its length.
    intervals: Quantiles,
    /// The p99 of `lags`, and the p90 of `intervals`.
    lag: Duration,
    interval: Duration,
}

/// The progress of a sender.
#[derive(Debug, Clone, PartialEq)]
pub struct SenderStatus {
    /// The user, or the address and replica labels.
    pub name: Arc<str>,
    /// The newest timestamp that it has sent.
    pub newest: Time,
    /// Time of its last request.
    pub last_arrival: Time,
    /// Its usual arrival lag.
    pub lag: Duration,
    /// The usual interval between its newest timestamps.
    pub interval: Duration,
}

/// Readiness of the data for an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// All live senders have delivered the time of the evaluation.
    Ready,
    /// All live senders will have delivered it at this time.
    At(Time),
    /// A live sender has not delivered it yet.
    Unknown,
}

impl Lags {
    /// Notes a request with samples from `oldest_ms` to `newest_ms`.
    pub fn note(&self, name: &str, now: Time, oldest_ms: i64, newest_ms: i64) {
        let mut senders = self.by_name.lock();
        if let Some(sender) = senders.get_mut(name) {
            return sender.note(now, Time::from_ms(oldest_ms), Time::from_ms(newest_ms));
        }
        if senders.len() == SENDERS_MAX {
            let silent = senders
                .iter()
                .min_by_key(|(_, sender)| sender.last_arrival)
                .map(|(name, _)| Arc::clone(name));
            if let Some(silent) = silent {
                senders.remove(&silent);
            }
        }
        let mut sender = SenderLag::new(now, Time::from_ms(newest_ms).min(now));
        sender.note(now, Time::from_ms(oldest_ms), Time::from_ms(newest_ms));
        senders.insert(Arc::from(name), sender);
    }

    /// Returns the readiness of the data for an evaluation at `tick`, for a group with this
    /// interval.
    #[must_use]
    pub fn readiness(&self, tick: Time, now: Time, interval: Duration) -> Readiness {
        let mut ready_at = tick;
        for sender in self.by_name.lock().values() {
            if !sender.is_live(now, interval) {
                continue;
            }
            if !sender.has_delivered(tick) {
                return Readiness::Unknown;
            }
            ready_at = ready_at.max(tick + sender.lag);
        }
        if ready_at <= now {
            Readiness::Ready
        } else {
            Readiness::At(ready_at)
        }
    }

    /// Returns `true` if no sender is refilling a gap, that is, if each live one has sent recent
    /// samples. `interval` is that of the group.
    #[must_use]
    pub fn have_refilled(&self, now: Time, interval: Duration) -> bool {
        self.by_name.lock().values().all(|sender| {
            let is_recent = now.since(sender.newest) <= sender.lag + sender.interval + BACKLOG_MAX;
            is_recent || !sender.is_live(now, interval)
        })
    }

    /// Returns the progress of all senders, by name.
    #[must_use]
    pub fn status(&self) -> Vec<SenderStatus> {
        let mut all: Vec<_> = self
            .by_name
            .lock()
            .iter()
            .map(|(name, sender)| SenderStatus {
                name: Arc::clone(name),
                newest: sender.newest,
                last_arrival: sender.last_arrival,
                lag: sender.lag,
                interval: sender.interval,
            })
            .collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl SenderLag {
    fn new(now: Time, newest: Time) -> Self {
        Self {
            newest,
            last_arrival: now,
            resumed: now,
            backlog_until: now,
            lags: Quantiles::new(now),
            intervals: Quantiles::new(now),
            lag: Duration::ZERO,
            interval: Duration::ZERO,
        }
    }

    fn note(&mut self, now: Time, oldest: Time, newest: Time) {
        // A timestamp in the future does not show that everything before it has arrived.
        let newest = newest.min(now);
        if !self.interval.is_zero()
            && now.since(self.last_arrival) > PAUSE_MIN.max(self.interval * SILENT_INTERVALS)
        {
            self.resumed = now;
            self.backlog_until = now;
        }
        if oldest < self.resumed {
            self.backlog_until = now;
        }
        let lag = now.since(oldest);
        if lag <= LAG_MAX && oldest >= self.backlog_until {
            self.lags.add(now, lag, 1);
            self.lag = self.lags.get(0.99).unwrap_or_default();
        }
        let interval = newest.since(self.newest);
        if !interval.is_zero() && interval <= INTERVAL_MAX {
            self.intervals
                .add(now, interval, interval.as_millis() as u64);
            self.interval = self.intervals.get(0.9).unwrap_or_default();
        }
        self.newest = self.newest.max(newest);
        self.last_arrival = now;
    }

    fn is_live(&self, now: Time, interval: Duration) -> bool {
        now.since(self.last_arrival) <= interval.max(self.interval) * SILENT_INTERVALS
    }

    fn has_delivered(&self, tick: Time) -> bool {
        self.newest >= tick || self.newest + self.interval > tick
    }
}

#[cfg(test)]
mod tests;
