//! The newest time of a store, from which all age limits count back.
//!
//! A sample may be ahead of the clock by at most `ahead_max_ms`. A newer sample shows that a clock
//! was wrong: now, when the sample was written, or while an earlier process ran. Such a sample must
//! not move the newest time. Otherwise, until the clock has caught up, correct samples would be
//! rejected as too old, active series would count as idle, and retention would remove blocks too
//! early.
//!
//! Invariants
//! 1. Samples of the process itself make samples of senders too old by at most `ahead_max_ms`, also
//!    after a restart.
//! 2. The accepted newest time is at most the earlier of wall clock and expected time
//!    ([`SteadyClock`]). So a sample ahead of the clock makes no sample near the clock too old,
//!    whoever sent it.
//! 3. While new samples are compared with a time more than `ahead_max_ms` before the newest sample,
//!    the WAL may contain samples of any age. A durable file ([`UNBOUNDED`]) says so until a flush
//!    has removed them from the WAL. Meanwhile reads of all ranges wait for a replay. While the
//!    file cannot be created, no samples are appended.
//!
//! Threads: any. Appends take a lock for some nanoseconds, to read the clock.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use varve_env::steady_clock::{CLOCK_JUMP_CONFIRMED_AFTER, SteadyClock, time_after};
use varve_env::{Fs, StateFile};

use crate::batch::SampleSource;
use crate::error::{Error, Result};
use crate::options::Options;

/// Name of the file in the WAL directory whose existence means that the WAL may contain samples of
/// any age.
const UNBOUNDED: &str = "unbounded";
/// Its contents: the newest timestamp that senders wrote, or `i64::MAX` if the process itself wrote
/// no newer one.
const UNBOUNDED_FILE: StateFile = StateFile {
    magic: *b"VUNB",
    version: 1,
    payload_size_max: size_of::<i64>(),
};
/// Maximum lag of senders behind the samples of the process itself. Older samples of senders are
/// not waited for.
const LAG_MAX_MS: i64 = 24 * 3_600_000;
/// Minimum time between two attempts to create the file.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The newest time of a store.
#[derive(Debug)]
pub(crate) struct Newest {
    clock: SteadyClock,
    ahead_max_ms: i64,
    /// Newest timestamp that a sender wrote since startup. `i64::MIN` if there is none.
    sent_ms: AtomicI64,
    /// Newest timestamp that the process itself wrote since startup. `i64::MIN` if there is none.
    own_ms: AtomicI64,
    /// Newest timestamp that startup has found so far. `i64::MIN` if there is none.
    pub(crate) found_ms: AtomicI64,
    /// Newest timestamp of a sender that startup can find. The process itself wrote all newer ones.
    found_sent_max_ms: i64,
    /// The first timestamp passed to [`Newest::opened_at`], and when.
    at_open: OnceLock<(i64, Duration)>,
    mark: Mutex<Mark>,
}

/// The file [`UNBOUNDED`].
#[derive(Debug)]
struct Mark {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    exists: bool,
    /// Samples of any age may have been logged since the last freeze of the heads.
    is_needed: bool,
    /// When the file could not be created, and why.
    failed: Option<(Duration, ErrorKind)>,
}

impl Newest {
    /// Creates the newest time of an empty store.
    pub(crate) fn new(options: &Options, wal_dir: &Path) -> Self {
        let fs = Arc::clone(&options.fs);
        let path = wal_dir.join(UNBOUNDED);
        let read = UNBOUNDED_FILE.read(&*fs, &path);
        let sent_ms = read
            .as_ref()
            .ok()
            .and_then(|bytes| bytes.as_deref()?.try_into().ok())
            .map(i64::from_le_bytes);
        // A damaged file says only that it was created.
        let exists = read != Ok(None);
        Self {
            clock: SteadyClock::new(Arc::clone(&options.clock)),
            ahead_max_ms: options.ahead_max_ms,
            sent_ms: AtomicI64::new(i64::MIN),
            own_ms: AtomicI64::new(i64::MIN),
            found_ms: AtomicI64::new(i64::MIN),
            found_sent_max_ms: sent_ms.unwrap_or(i64::MAX),
            at_open: OnceLock::new(),
            mark: Mutex::new(Mark {
                fs,
                path,
                exists,
                is_needed: false,
                failed: None,
            }),
        }
    }

    /// Records the newest timestamp found at startup. The first call is for blocks and checkpoints,
    /// later ones are for the WAL. Retention uses only the first.
    pub(crate) fn opened_at(&self, newest_ms: i64) {
        self.found_ms.fetch_max(newest_ms, Ordering::Relaxed);
        let now = self.clock.now();
        self.at_open.get_or_init(|| (newest_ms, now.elapsed));
        // The clock is wrong now, or was wrong when the samples were written.
        let sent_ms = newest_ms.min(self.found_sent_max_ms);
        if sent_ms > now.wall_ms.saturating_add(self.ahead_max_ms) {
            self.clock.expect_at_least(sent_ms);
        }
    }

    /// Records the timestamp of an accepted sample.
    pub(crate) fn raise(&self, timestamp_ms: i64, source: SampleSource) {
        let newest_ms = match source {
            SampleSource::Sent => &self.sent_ms,
            SampleSource::Own => &self.own_ms,
        };
        newest_ms.fetch_max(timestamp_ms, Ordering::Relaxed);
    }

    /// Returns the newest timestamp of any sample, or `None` if the store is empty.
    pub(crate) fn get(&self) -> Option<i64> {
        newest(
            [&self.sent_ms, &self.own_ms, &self.found_ms]
                .map(|newest_ms| newest_ms.load(Ordering::Relaxed)),
        )
    }

    /// Returns the newest timestamp of the samples that senders wrote.
    pub(crate) fn sent(&self) -> Option<i64> {
        let found_ms = self
            .found_ms
            .load(Ordering::Relaxed)
            .min(self.found_sent_max_ms);
        newest([self.sent_ms.load(Ordering::Relaxed), found_ms])
    }

    /// Returns the newest time that decides which series are idle and which windows are closed.
    pub(crate) fn accepted(&self) -> Option<i64> {
        self.get()
            .map(|newest_ms| newest_ms.min(self.clock.now().earliest_ms()))
    }

    /// Returns the newest time from which the age of new samples is measured.
    pub(crate) fn accepted_sent(&self) -> Option<i64> {
        self.sent()
            .map(|sent_ms| sent_ms.min(self.clock.now().earliest_ms()))
    }

    /// Returns the time up to which senders have probably sent their samples: as
    /// [`Newest::accepted_sent`], but at most [`LAG_MAX_MS`] before [`Newest::accepted`].
    pub(crate) fn caught_up(&self) -> Option<i64> {
        let accepted_ms = self.accepted()?;
        Some(self.accepted_sent().map_or(accepted_ms, |sent_ms| {
            sent_ms.max(accepted_ms.saturating_sub(LAG_MAX_MS))
        }))
    }

    /// Returns the bounds of an append: the newest time from which the age of its samples is
    /// measured, and the greatest allowed timestamp.
    ///
    /// # Errors
    /// [`Error::Io`] if samples of any age may be appended and [`UNBOUNDED`] cannot be created.
    pub(crate) fn bounds(&self, source: SampleSource) -> Result<(Option<i64>, i64)> {
        let now = self.clock.now();
        let sent_ms = self.sent();
        let mut newest_ms = self.get();
        if source == SampleSource::Own {
            newest_ms = newest_ms.max(Some(now.wall_ms));
        }
        let accepted_ms = sent_ms.map(|sent_ms| sent_ms.min(now.earliest_ms()));
        // Rare: a clock was wrong, or only the process itself writes.
        if accepted_ms < newest_ms.map(|newest_ms| newest_ms.saturating_sub(self.ahead_max_ms)) {
            let found_sent_max_ms = if sent_ms < newest_ms {
                sent_ms.unwrap_or(i64::MIN)
            } else {
                i64::MAX
            };
            self.mark.lock().create(found_sent_max_ms, now.elapsed)?;
        }
        Ok((
            accepted_ms,
            now.latest_ms().saturating_add(self.ahead_max_ms),
        ))
    }

    /// Returns the timestamp for samples of the process itself: the earlier of wall clock and
    /// expected time. If the clock is fast and then corrected, samples in the future would remain.
    pub(crate) fn own_now_ms(&self) -> i64 {
        self.clock.now().earliest_ms()
    }

    /// Returns the time from which retention counts back: the earliest of the newest sample, the
    /// wall clock and the expected time. The wall clock may have been wrong all along, so data
    /// found at startup proves only its own time.
    pub(crate) fn retention_ms(&self) -> Option<i64> {
        let now = self.clock.now();
        let since_open = self
            .at_open
            .get()
            .map(|(newest_ms, at)| (newest_ms, now.elapsed.saturating_sub(*at)));
        let expected_ms = match since_open {
            Some((newest_ms, passed)) if passed < CLOCK_JUMP_CONFIRMED_AFTER => {
                time_after(*newest_ms, passed)
            }
            _ => i64::MAX,
        };
        self.get()
            .map(|newest_ms| newest_ms.min(now.earliest_ms()).min(expected_ms))
    }

    /// Returns `true` if the WAL may contain samples of any age.
    pub(crate) fn is_unbounded(&self) -> bool {
        self.mark.lock().exists
    }

    /// Records a freeze of the heads, which begins a new part of the WAL. The caller ensures that
    /// no append runs.
    pub(crate) fn freeze(&self) {
        self.mark.lock().is_needed = false;
    }

    /// Records that the WAL has been truncated to the last freeze. Removes the file if no sample
    /// needs it.
    pub(crate) fn cut(&self) {
        // After a restart, the file tells samples of the process from those of senders.
        let is_own_ahead = self.sent()
            < self
                .get()
                .map(|newest_ms| newest_ms.saturating_sub(self.ahead_max_ms));
        let mut mark = self.mark.lock();
        if mark.exists && !mark.is_needed && !is_own_ahead {
            match mark.fs.remove(&mark.path) {
                // After a power cut the file may exist again, which is harmless.
                Ok(()) => mark.exists = false,
                Err(error) => {
                    tracing::warn!(path = ?mark.path, %error, "could not remove a file; the next flush retries")
                }
            }
        }
    }
}

impl Mark {
    /// Creates or rewrites the file, unless that was done since the last freeze.
    fn create(&mut self, found_sent_max_ms: i64, elapsed: Duration) -> Result<()> {
        if self.exists && self.is_needed {
            return Ok(());
        }
        if let Some((at, kind)) = self.failed
            && elapsed.saturating_sub(at) < RETRY_INTERVAL
        {
            return Err(Error::io("create", &self.path)(kind.into()));
        }
        if let Err(error) =
            UNBOUNDED_FILE.replace(&*self.fs, &self.path, &found_sent_max_ms.to_le_bytes())
        {
            if self
                .failed
                .replace((elapsed, error.source.kind()))
                .is_none()
            {
                tracing::error!(path = ?self.path, %error, "no samples are appended until this file can be created");
            }
            return Err(Error::io("create", &self.path)(error.source));
        }
        (self.exists, self.is_needed, self.failed) = (true, true, None);
        Ok(())
    }
}

/// Returns the newest timestamp. `i64::MIN` stands for no timestamp.
fn newest<const N: usize>(timestamps_ms: [i64; N]) -> Option<i64> {
    timestamps_ms
        .into_iter()
        .max()
        .filter(|&newest_ms| newest_ms != i64::MIN)
}
