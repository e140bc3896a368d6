//! The windows that are in the bucket, in the file `uploads` of the data directory
//! (docs/format/uploads.md).
//!
//! It only saves work: without it, every window is exported again and compared with the blocks of
//! the bucket.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use varve_env::{RealFs, StateFile};
use varve_prometheus::block::Ulid;
use varve_prometheus::export::EXPORT_WINDOWS_MAX;

const FILE: StateFile = StateFile {
    magic: *b"VUPL",
    version: 1,
    payload_size_max: 8 << 20,
};

/// External labels, ascending by name.
pub type ExternalLabels = Vec<(String, String)>;

/// Which windows have been uploaded to which bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The id of the bucket.
    bucket: String,
    external_labels: ExternalLabels,
    /// The block of each window, by its number since the epoch.
    windows: BTreeMap<i64, String>,
}

impl State {
    /// Reads a file. Returns an empty state if it does not exist or cannot be read.
    pub(super) fn load(path: &Path) -> Self {
        let read = FILE.read(&RealFs, path).map_err(|error| error.to_string());
        let parsed = read.and_then(|bytes| match bytes {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            None => Ok(Self::default()),
        });
        parsed.unwrap_or_else(|reason| {
            tracing::warn!(
                ?path,
                reason,
                "Cannot read which blocks were uploaded; comparing all with the bucket"
            );
            Self::default()
        })
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        Ok(FILE.replace(&RealFs, path, &serde_json::to_vec(self)?)?)
    }

    pub(super) fn is_bound_to(&self, bucket: &str, labels: &[(String, String)]) -> bool {
        self.bucket == bucket && self.external_labels == labels
    }

    /// Discards all windows, and begins with a bucket.
    pub(super) fn bind(&mut self, bucket: String, external_labels: ExternalLabels) {
        *self = Self {
            bucket,
            external_labels,
            windows: BTreeMap::new(),
        };
    }

    pub(super) fn has(&self, window: i64) -> bool {
        self.windows.contains_key(&window)
    }

    /// Records the block of a window. Above [`EXPORT_WINDOWS_MAX`], the oldest window is forgotten.
    pub(super) fn add(&mut self, window: i64, ulid: Ulid) {
        self.windows.insert(window, ulid.to_string());
        if self.windows.len() as u64 > EXPORT_WINDOWS_MAX {
            self.windows.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_env::testing::assert_shown;

    use super::*;

    fn labels(replica: &str) -> ExternalLabels {
        vec![
            ("cluster".to_owned(), "x".to_owned()),
            ("replica".to_owned(), replica.to_owned()),
        ]
    }

    #[test]
    fn a_state_is_kept_for_one_bucket_and_its_labels() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uploads");
        let mut state = State::load(&path);
        assert!(!state.is_bound_to("b", &labels("a")));
        state.bind("b".to_owned(), labels("a"));
        state.add(-3, Ulid::new(1, 2));
        state.save(&path).unwrap();
        let mut loaded = State::load(&path);
        assert_eq!(loaded, state);
        assert!(loaded.has(-3) && !loaded.has(3) && loaded.is_bound_to("b", &labels("a")));
        assert!(!loaded.is_bound_to("c", &labels("a")) && !loaded.is_bound_to("b", &labels("b")));
        loaded.bind("c".to_owned(), labels("a"));
        assert!(!loaded.has(-3));
        std::fs::write(&path, "damaged").unwrap();
        assert_eq!(State::load(&path), State::default());
    }

    #[test]
    fn the_format_page_shows_the_written_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uploads");
        let mut state = State::default();
        state.bind("b".to_owned(), labels("a"));
        state.add(244_956, Ulid::new(1_763_683_200_000, 1));
        state.save(&path).unwrap();
        assert_shown(
            include_str!("../../../../docs/format/uploads.md"),
            &std::fs::read(&path).unwrap(),
        );
        assert_eq!(State::load(&path), state);
    }

    #[test]
    fn the_oldest_window_is_forgotten_when_there_are_too_many() {
        let mut state = State::default();
        for window in 0..=EXPORT_WINDOWS_MAX as i64 {
            state.add(window, Ulid::default());
        }
        assert!(!state.has(0) && state.has(1) && state.has(EXPORT_WINDOWS_MAX as i64));
        assert!(serde_json::to_vec(&state).unwrap().len() < FILE.payload_size_max);
    }
}
