//! Senders of write requests: requests, samples, rejections and the last error of each since
//! startup.
//!
//! Filled by the write handlers, read by /api/v1/status/senders and by the observer, which logs
//! senders that vanish. Keeps at most [`SENDERS_MAX`] senders. A new sender evicts the one that has
//! been silent longest.

pub mod observer;
mod series_sketch;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_ingest::{SeriesHash, WriteError, Written};
use varve_system::excerpt::truncate;

use crate::rejections::Sender;
use series_sketch::SeriesSketch;

/// Maximum number of senders.
const SENDERS_MAX: usize = 1_000;
/// Maximum size of a stored error. A longer one is truncated.
const ERROR_SIZE_MAX: usize = 300;
/// Maximum number of senders that are compared for one series.
const SHARED_MAX: usize = 5;
const MINUTE_MS: i64 = 60_000;
/// Minimum time over which the rate of a sender is averaged.
const RATE_TIME_MIN_MS: i64 = 10_000;
/// Time of silence after which a sender has vanished.
pub(crate) const SILENT_MAX_MS: i64 = 5 * MINUTE_MS;

/// Senders since startup.
#[derive(Debug, Default)]
pub struct Senders {
    all: Mutex<HashMap<SenderId, SenderStats>>,
}

/// The identity of a sender. It has no port, because the port of a sender changes with each
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SenderId {
    /// The sender's address.
    pub address: Option<IpAddr>,
    /// The user; empty without authentication.
    pub user: Arc<str>,
    /// The user agent, truncated.
    pub user_agent: String,
    /// The path of the requests.
    pub path: String,
}

/// Statistics of a sender.
#[derive(Debug, Clone, Default)]
pub struct SenderStats {
    /// The name that rules and metrics use; see [`Sender::name`].
    pub name: String,
    /// Time of the first request.
    pub first_ms: i64,
    /// Time of the last request.
    pub last_ms: i64,
    /// Number of requests.
    pub n_requests: u64,
    /// Samples received: stored, dropped by rules, or deduplicated.
    pub n_samples: u64,
    /// Samples dropped because another replica of the HA pair is the leader.
    pub n_deduplicated: u64,
    /// Requests that were not stored completely.
    pub n_failed: u64,
    /// The last error, truncated; empty if there was none.
    pub last_error: String,
    /// Time of the last error.
    pub last_error_ms: i64,
    /// The newest timestamp of a float of the latest request with floats, and when this request
    /// ended.
    pub newest_sample: Option<NewestSample>,
    series: SeriesSketch,
    has_vanished: bool,
    minute: i64,
    samples_of_minute: u64,
    samples_of_last_minute: u64,
}

/// The newest sample of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewestSample {
    /// Its timestamp.
    pub timestamp_ms: i64,
    pub(crate) stored_ms: i64,
}

impl NewestSample {
    /// Returns the age of the sample when it was stored. 0 if the clock of the sender is ahead.
    pub fn lag_ms(self) -> u64 {
        u64::try_from(self.stored_ms.saturating_sub(self.timestamp_ms)).unwrap_or(0)
    }
}

impl From<Sender> for SenderId {
    fn from(
        Sender {
            address,
            user_agent,
            user,
            path,
        }: Sender,
    ) -> Self {
        Self {
            address: address.map(|address| address.ip()),
            user,
            user_agent,
            path,
        }
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            user,
            user_agent,
            path,
        } = self;
        match address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("unknown address")?,
        }
        for (name, text) in [
            ("user agent", user_agent.as_str()),
            ("user", user),
            ("path", path),
        ] {
            if !text.is_empty() {
                write!(f, ", {name} {text}")?;
            }
        }
        Ok(())
    }
}

impl Senders {
    /// Adds a write request that has ended. Logs a sender that is new or had vanished, unless the
    /// list is full.
    pub fn add(&self, now_ms: i64, sender: Sender, outcome: &Result<Written, WriteError>) {
        let name = sender.name(
            outcome
                .as_ref()
                .ok()
                .and_then(|written| written.replica.as_deref()),
        );
        let id = SenderId::from(sender);
        let mut all = self.all.lock();
        let is_known = all
            .get_mut(&id)
            .is_some_and(|stats| !std::mem::take(&mut stats.has_vanished));
        if !is_known && all.len() < SENDERS_MAX {
            tracing::info!(sender = %id, "A sender has appeared");
        }
        if all.len() >= SENDERS_MAX && !all.contains_key(&id) {
            let silent = all
                .iter()
                .min_by_key(|(_, stats)| stats.last_ms)
                .map(|(id, _)| id.clone());
            if let Some(id) = silent {
                all.remove(&id);
            }
        }
        let stats = all.entry(id).or_insert_with(|| SenderStats {
            name: name.clone(),
            first_ms: now_ms,
            ..SenderStats::default()
        });
        match outcome {
            Ok(written) => {
                stats.name = name;
                let n_samples =
                    written.stored.total + written.dropped.total + written.deduplicated.total;
                stats.add(now_ms, n_samples);
                stats.n_deduplicated += written.deduplicated.total;
                let newest = written.times.map(|times| NewestSample {
                    timestamp_ms: times.end_ms,
                    stored_ms: now_ms,
                });
                stats.newest_sample = newest.or(stats.newest_sample);
                stats.series.add(now_ms, &written.series);
                if !written.rejections.is_empty() {
                    stats.fail(now_ms, &written.rejections.to_string());
                }
            }
            Err(error) => {
                stats.add(now_ms, 0);
                stats.fail(now_ms, &error.to_string());
            }
        }
    }

    /// Returns the senders that have vanished since the last call.
    pub(super) fn vanished(&self, now_ms: i64) -> Vec<SenderId> {
        let mut all = self.all.lock();
        let silent = all
            .iter_mut()
            .filter(|(_, stats)| now_ms - stats.last_ms > SILENT_MAX_MS && !stats.has_vanished);
        let vanished = silent.map(|(id, stats)| {
            stats.has_vanished = true;
            id.clone()
        });
        vanished.collect()
    }

    /// Returns all senders, the most recent first.
    pub fn list(&self) -> Vec<(SenderId, SenderStats)> {
        let all = self.all.lock();
        let mut list: Vec<_> = all
            .iter()
            .map(|(id, stats)| (id.clone(), stats.clone()))
            .collect();
        drop(all);
        list.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.last_ms));
        list
    }
}

/// A sender whose series another one sends, too.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedSeries {
    /// The other sender.
    pub other: SenderId,
    /// The share of the series of the first one, from 0 to 1, estimated.
    pub share: f64,
}

/// Returns for each sender the others that send most of its series, too. Compares the first
/// [`SHARED_MAX`] senders of each series.
pub fn shared_series(senders: &[(SenderId, SenderStats)], now_ms: i64) -> Vec<Vec<SharedSeries>> {
    let mut by_series: HashMap<SeriesHash, Vec<usize>> = HashMap::new();
    for (idx, (_, stats)) in senders.iter().enumerate() {
        for series in stats.series.iter() {
            let senders = by_series.entry(series).or_default();
            if senders.len() < SHARED_MAX {
                senders.push(idx);
            }
        }
    }
    let mut shared = Vec::with_capacity(senders.len());
    for (idx, (_, stats)) in senders.iter().enumerate() {
        let known = stats
            .series
            .iter()
            .filter_map(|series| by_series.get(&series));
        let others: BTreeSet<usize> = known.flatten().copied().collect();
        let others = others.into_iter().filter(|other| *other != idx);
        let with_share = others.filter_map(|other| {
            let (id, other) = &senders[other];
            let share = stats.series.share_of(&other.series, now_ms)?;
            Some(SharedSeries {
                other: id.clone(),
                share,
            })
        });
        shared.push(with_share.collect());
    }
    shared
}

impl SenderStats {
    fn add(&mut self, now_ms: i64, n_samples: u64) {
        self.begin_minute(now_ms);
        self.last_ms = now_ms;
        self.n_requests += 1;
        self.n_samples += n_samples;
        self.samples_of_minute += n_samples;
    }

    fn fail(&mut self, now_ms: i64, error: &str) {
        self.n_failed += 1;
        self.last_error = truncate(error, ERROR_SIZE_MAX).to_owned();
        self.last_error_ms = now_ms;
    }

    fn begin_minute(&mut self, now_ms: i64) {
        let minute = now_ms.div_euclid(MINUTE_MS);
        if minute != self.minute {
            self.samples_of_last_minute = if minute == self.minute + 1 {
                self.samples_of_minute
            } else {
                0
            };
            self.samples_of_minute = 0;
            self.minute = minute;
        }
    }

    /// Returns the number of series with a sample in the last ten minutes. From 64 on it is estimated,
    /// with a standard error of 13 %.
    pub fn n_series(&self, now_ms: i64) -> u64 {
        self.series.n_series(now_ms)
    }

    /// Returns samples per second, averaged over the previous and the current minute, or since the
    /// first request.
    pub fn samples_per_second(&self, now_ms: i64) -> f64 {
        let mut now = self.clone();
        now.begin_minute(now_ms);
        let known_ms = (now_ms - self.first_ms).max(RATE_TIME_MIN_MS);
        let window_ms = known_ms.min(MINUTE_MS + now_ms.rem_euclid(MINUTE_MS));
        (now.samples_of_last_minute + now.samples_of_minute) as f64 * 1000.0 / window_ms as f64
    }
}

#[cfg(test)]
mod tests {
    use varve_ingest::SampleCounts;

    use super::*;

    fn sender(user_agent: &str, port: u16) -> Sender {
        let address = Some(([127, 0, 0, 1], port).into());
        Sender {
            address,
            user_agent: user_agent.to_owned(),
            ..Sender::default()
        }
    }

    fn written(total: u64) -> Result<Written, WriteError> {
        Ok(Written {
            stored: SampleCounts {
                total,
                histograms: 0,
            },
            ..Written::default()
        })
    }

    #[test]
    fn requests_of_a_sender_are_added_up_whatever_the_port() {
        let senders = Senders::default();
        senders.add(MINUTE_MS, sender("a", 1), &written(100));
        senders.add(MINUTE_MS + 1, sender("a", 2), &written(20));
        senders.add(MINUTE_MS + 2, sender("b", 3), &written(5));
        let list = senders.list();
        let names: Vec<_> = list
            .iter()
            .map(|(id, stats)| (&*id.user_agent, stats.n_requests, stats.n_samples))
            .collect();
        assert_eq!(names, [("b", 1, 5), ("a", 2, 120)]);
        let a = &list[1].1;
        for (now_ms, expect) in [
            (MINUTE_MS + 5_000, 12.0),
            (MINUTE_MS + 20_000, 6.0),
            (2 * MINUTE_MS, 2.0),
            (3 * MINUTE_MS, 0.0),
        ] {
            assert_eq!(a.samples_per_second(now_ms), expect, "{now_ms}");
        }
        senders.add(2 * MINUTE_MS + 1, sender("a", 1), &written(60));
        assert_eq!(
            senders.list()[0]
                .1
                .samples_per_second(2 * MINUTE_MS + 30_000),
            2.0
        );
    }

    #[test]
    fn the_lag_is_the_age_of_the_newest_sample() {
        let senders = Senders::default();
        let lag_after = |now_ms, end_ms: Option<i64>| {
            let times = end_ms.map(|end_ms| varve_model::TimeRange {
                start_ms: 0,
                end_ms,
            });
            senders.add(
                now_ms,
                sender("a", 1),
                &Ok(Written {
                    times,
                    ..Written::default()
                }),
            );
            senders.list()[0].1.newest_sample.map(NewestSample::lag_ms)
        };
        assert_eq!(lag_after(5_000, None), None);
        assert_eq!(lag_after(5_000, Some(1_000)), Some(4_000));
        assert_eq!(
            lag_after(9_000, None),
            Some(4_000),
            "requests of metadata have no samples"
        );
        assert_eq!(
            lag_after(9_000, Some(10_000)),
            Some(0),
            "the clock of the sender is ahead"
        );
    }

    #[test]
    fn a_sender_vanishes_after_minutes_of_silence() {
        let senders = Senders::default();
        let vanished = |now_ms| {
            senders
                .vanished(now_ms)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        senders.add(0, sender("a", 1), &written(1));
        senders.add(SILENT_MAX_MS, sender("b", 1), &written(1));
        assert!(vanished(SILENT_MAX_MS).is_empty());
        assert_eq!(vanished(SILENT_MAX_MS + 1), ["127.0.0.1, user agent a"]);
        assert!(vanished(SILENT_MAX_MS + 2).is_empty(), "once");
        senders.add(SILENT_MAX_MS + 3, sender("a", 1), &written(1));
        assert_eq!(vanished(3 * SILENT_MAX_MS).len(), 2);
    }

    #[test]
    fn the_last_error_is_kept() {
        let senders = Senders::default();
        let error = WriteError::TooLarge {
            what: "body",
            size: 2,
            limit: 1,
            bound: varve_context::Limit::Other("--x"),
        };
        senders.add(5, sender("a", 1), &Err(error));
        senders.add(6, sender("a", 1), &written(1));
        let stats = &senders.list()[0].1;
        assert_eq!(
            (stats.n_failed, stats.n_requests, stats.last_error_ms),
            (1, 2, 5)
        );
        assert_eq!(stats.last_error, "body of 2 exceeds the limit of 1 (--x)");
    }

    #[test]
    fn the_most_silent_sender_makes_room() {
        let senders = Senders::default();
        for i in 0..=SENDERS_MAX {
            senders.add(i as i64, sender(&i.to_string(), 1), &written(1));
        }
        let list = senders.list();
        assert_eq!(list.len(), SENDERS_MAX);
        assert!(list.iter().all(|(id, _)| id.user_agent != "0"));
    }
}
