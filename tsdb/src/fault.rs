//! Damage that was found, where, and what it cost.

use std::path::{Path, PathBuf};

/// Most faults that are kept one by one; those beyond are counted.
pub const FAULTS_KEPT_MAX: usize = 10_000;

/// One place that cannot be read as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, or the folder where a file is missing.
    pub path: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// What kind of thing it is.
    pub kind: FaultKind,
    /// What was found.
    pub reason: String,
}

/// What a fault means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// Bytes that are not what was written.
    Damage,
    /// The newest file ends in the middle of something: it was being written when the process ended, or still is.
    TornTail,
    /// Something of a kind that this program does not know.
    Unknown,
    /// A file that should be there is not.
    Missing,
}

impl FaultKind {
    /// Returns the name that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::TornTail => "torn tail",
            Self::Unknown => "unknown",
            Self::Missing => "missing",
        }
    }
}

/// The faults of a run: the first ones, and how many of each kind there were.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    kept: Vec<Fault>,
    counts: [u64; 4],
}

impl Faults {
    /// Notes a fault.
    pub fn push(&mut self, path: &Path, offset: u64, kind: FaultKind, reason: impl Into<String>) {
        self.counts[kind as usize] += 1;
        if self.kept.len() < FAULTS_KEPT_MAX {
            self.kept.push(Fault { path: path.to_owned(), offset, kind, reason: reason.into() });
        }
    }

    /// Adds the faults of another run behind these.
    pub fn append(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        let room = FAULTS_KEPT_MAX - self.kept.len();
        self.kept.extend(other.kept.into_iter().take(room));
    }

    /// Counts the faults of a kind.
    #[must_use]
    pub fn count(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Counts all that is more than a torn tail: what makes a directory unsound.
    #[must_use]
    pub fn n_unsound(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.count(FaultKind::TornTail)
    }

    /// Returns the first [`FAULTS_KEPT_MAX`] faults, in the order in which they were found.
    #[must_use]
    pub fn kept(&self) -> &[Fault] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_beyond_the_bound_are_counted() {
        let mut faults = Faults::default();
        for offset in 0..FAULTS_KEPT_MAX as u64 + 5 {
            faults.push(Path::new("wal/00000001"), offset, FaultKind::Damage, "bad");
        }
        let mut all = Faults::default();
        all.push(Path::new("wal"), 0, FaultKind::TornTail, "cut");
        all.append(faults);
        assert_eq!(all.kept().len(), FAULTS_KEPT_MAX);
        assert_eq!((all.count(FaultKind::Damage), all.n_unsound()), (10_005, 10_005));
    }
}
