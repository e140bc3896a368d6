//! [`DiskProbe`]: whether the disk takes a write. A store that has not written since the disk filled
//! up would report ready.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_env::{Fs, remove_if_exists};

use crate::error::{Error, Result};

/// Time for which an outcome holds: probes of many clients write once.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a probe writes: a block of most file systems.
const SIZE: usize = 4_096;

/// Writes a small file to the data directory, and removes it, one probe at a time: on a disk that
/// hangs, only one thread waits.
#[derive(Debug)]
pub(super) struct DiskProbe {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Outcome>,
    /// When the probe began that is running.
    running_since: Option<Instant>,
}

#[derive(Debug)]
struct Outcome {
    at: Instant,
    failure: Option<String>,
}

/// Whether a probe is due.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    Probe,
    /// It is not, and this is why the disk takes no write.
    Known(Option<String>),
}

impl DiskProbe {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join("probe"),
            state: Mutex::default(),
        }
    }

    /// Returns why the disk takes no write, as of the last second. Waits for the disk, unless another
    /// probe does.
    pub(super) fn failure(&self, fs: &dyn Fs, now: Instant) -> Option<String> {
        match self.begin(now) {
            Begun::Known(failure) => return failure,
            Begun::Probe => {}
        }
        let failure = self.write(fs).err().map(|error| error.to_string());
        let mut state = self.state.lock();
        state.running_since = None;
        state.last = Some(Outcome {
            at: now,
            failure: failure.clone(),
        });
        failure
    }

    /// Returns what is known without a write: the last outcome, or that a write takes too long.
    /// Otherwise notes that a probe begins.
    fn begin(&self, now: Instant) -> Begun {
        let mut state = self.state.lock();
        let last = state.last.as_ref();
        if let Some(since) = state.running_since {
            let waits = now.saturating_duration_since(since);
            if waits < INTERVAL {
                return Begun::Known(last.and_then(|outcome| outcome.failure.clone()));
            }
            let path = &self.path;
            return Begun::Known(Some(format!(
                "a write to {path:?} has not ended for {} s",
                waits.as_secs()
            )));
        }
        if let Some(outcome) = last
            && now.saturating_duration_since(outcome.at) < INTERVAL
        {
            return Begun::Known(outcome.failure.clone());
        }
        state.running_since = Some(now);
        Begun::Probe
    }

    fn write(&self, fs: &dyn Fs) -> Result<()> {
        // A crash may have left the file of an earlier probe.
        remove_if_exists(fs, &self.path)?;
        let written = self.create(fs);
        // Also after a failure, which may leave an empty file.
        let removed = remove_if_exists(fs, &self.path);
        written.map_err(Error::io("write", &self.path))?;
        Ok(removed?)
    }

    fn create(&self, fs: &dyn Fs) -> io::Result<()> {
        fs.create(&self.path)?.append(&[0; SIZE])
    }
}

#[cfg(test)]
mod tests {
    use varve_env::testing::MemFs;

    use super::*;

    #[test]
    fn a_full_disk_is_found_and_an_outcome_holds_for_a_second() {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/data")).unwrap();
        let probe = DiskProbe::new(Path::new("/data"));
        let start = Instant::now();
        fs.set_room(0);
        let failure = probe.failure(&fs, start).unwrap();
        assert!(failure.contains("/data/probe"), "{failure}");
        fs.set_room(u64::MAX);
        assert_eq!(probe.failure(&fs, start + INTERVAL / 2), Some(failure));
        assert_eq!(probe.failure(&fs, start + INTERVAL), None);
        assert!(fs.list(Path::new("/data")).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_a_crash_left_is_replaced() {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/data")).unwrap();
        fs.create(Path::new("/data/probe")).unwrap();
        let probe = DiskProbe::new(Path::new("/data"));
        assert_eq!(probe.failure(&fs, Instant::now()), None);
        assert!(fs.list(Path::new("/data")).unwrap().is_empty());
    }

    #[test]
    fn on_a_disk_that_hangs_only_one_probe_waits() {
        let fs = MemFs::new();
        let probe = DiskProbe::new(Path::new("/data"));
        let start = Instant::now();
        // The probe that waits for the disk.
        assert_eq!(probe.begin(start), Begun::Probe);
        assert_eq!(probe.failure(&fs, start + INTERVAL / 2), None);
        let failure = probe.failure(&fs, start + 5 * INTERVAL);
        let expect = "a write to \"/data/probe\" has not ended for 5 s";
        assert_eq!(failure.as_deref(), Some(expect));
    }
}
