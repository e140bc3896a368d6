//! Reports of damaged files: which file, where, and why.
//!
//! Used by the inspection and repair of the WAL, and by `varve-prometheus`.

use std::path::{Path, PathBuf};

/// Maximum number of entries that a report lists; further ones are only counted.
pub const DAMAGE_LISTED_MAX: usize = 10_000;

/// A part of a file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file, or the directory in which a file is missing.
    pub path: PathBuf,
    /// Offset in the file, in bytes. 0 for a directory and for a missing file.
    pub offset: u64,
    /// The kind of damage.
    pub kind: DamageKind,
    /// Description of the damage.
    pub reason: String,
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// The bytes are not what was written.
    Corrupt,
    /// The newest file ends in the middle of a record: the process was killed while writing it, or
    /// is still writing.
    TornTail,
    /// This program does not read the format.
    Unsupported,
    /// A file, or a part of one, is missing.
    Missing,
}

impl DamageKind {
    /// Returns the name of the kind in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::TornTail => "torn tail",
            Self::Unsupported => "unsupported",
            Self::Missing => "missing",
        }
    }
}

/// All damage that was found: the first [`DAMAGE_LISTED_MAX`] entries, and the number of each kind.
#[derive(Debug, Clone, Default)]
pub struct DamageReport {
    entries: Vec<Damage>,
    counts: [u64; 4],
}

impl DamageReport {
    /// Appends an entry.
    pub fn push(&mut self, path: &Path, offset: u64, kind: DamageKind, reason: impl Into<String>) {
        self.counts[kind as usize] += 1;
        if self.entries.len() < DAMAGE_LISTED_MAX {
            self.entries.push(Damage {
                path: path.to_owned(),
                offset,
                kind,
                reason: reason.into(),
            });
        }
    }

    /// Appends the entries of another report.
    pub fn append(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        let room = DAMAGE_LISTED_MAX - self.entries.len();
        self.entries.extend(other.entries.into_iter().take(room));
    }

    /// Returns the number of entries of a kind.
    #[must_use]
    pub fn count(&self, kind: DamageKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Returns the number of entries that are not torn tails. Every crash may leave a torn tail, so
    /// it is not damage that needs attention.
    #[must_use]
    pub fn n_damaged(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.count(DamageKind::TornTail)
    }

    /// Returns the listed entries, in the order in which they were found.
    #[must_use]
    pub fn entries(&self) -> &[Damage] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_over_the_limit_are_only_counted() {
        let mut report = DamageReport::default();
        for offset in 0..DAMAGE_LISTED_MAX as u64 + 5 {
            report.push(
                Path::new("wal/00000001"),
                offset,
                DamageKind::Corrupt,
                "bad",
            );
        }
        let mut all = DamageReport::default();
        all.push(Path::new("wal"), 0, DamageKind::TornTail, "cut");
        all.append(report);
        assert_eq!(all.entries().len(), DAMAGE_LISTED_MAX);
        assert_eq!(
            (all.count(DamageKind::Corrupt), all.n_damaged()),
            (10_005, 10_005)
        );
    }
}
