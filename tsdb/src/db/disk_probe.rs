//! [`DiskProbe`]: whether the disk takes a write. Without it, a store that has not written since the
//! disk is full would not know.

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

/// Writes a small file to the data directory, and removes it. A file that a crash leaves behind is
/// replaced by the next probe.
#[derive(Debug)]
pub(super) struct DiskProbe {
    path: PathBuf,
    last: Mutex<Option<Outcome>>,
}

#[derive(Debug)]
struct Outcome {
    at: Instant,
    failure: Option<String>,
}

impl DiskProbe {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join("probe"),
            last: Mutex::default(),
        }
    }

    /// Returns why the disk takes no write, as of the last second. Waits for the disk.
    pub(super) fn failure(&self, fs: &dyn Fs, now: Instant) -> Option<String> {
        let mut last = self.last.lock();
        if let Some(outcome) = &*last
            && now.saturating_duration_since(outcome.at) < INTERVAL
        {
            return outcome.failure.clone();
        }
        let failure = self.write(fs).err().map(|error| error.to_string());
        *last = Some(Outcome {
            at: now,
            failure: failure.clone(),
        });
        failure
    }

    fn write(&self, fs: &dyn Fs) -> Result<()> {
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
}
