//! Names of the files of a log.

/// The suffix of a file that does not have its header, or all of a checkpoint, yet.
const TMP_SUFFIX: &str = ".tmp";

/// The number of a rotation is a multiple of it, so that a reader tells a rotation from missing
/// segments. Small, because the ids of exemplars grow with the numbers.
pub(super) const ROTATION_STEP: u64 = 16;

/// Returns the number of a rotation, after which both kinds of segments continue. `next` is the
/// higher one of their next numbers. Never the number of an earlier rotation, whose checkpoint may
/// still exist.
pub(super) fn rotation_number(next: u64) -> u64 {
    (next / ROTATION_STEP + 1) * ROTATION_STEP
}

/// The kind of a file of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Samples and exemplars.
    Samples,
    /// Series definitions and metadata.
    Series,
    /// Definitions, metadata and exemplars; replaces all segments with a lower number.
    Checkpoint,
}

/// The position of a checkpoint: the number of the first series segment and of the first samples
/// segment that it does not replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointPosition(pub(crate) u64);

impl SegmentKind {
    /// All kinds, in the order of a replay.
    pub(crate) const ALL: [Self; 3] = [Self::Checkpoint, Self::Series, Self::Samples];

    /// Returns the name of the kind in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.prefix().trim_end_matches('-')
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Samples => "samples-",
            Self::Series => "series-",
            Self::Checkpoint => "checkpoint-",
        }
    }

    /// Returns the file name for a number, for example `samples-00000007`.
    pub(crate) fn file_name(self, number: u64) -> String {
        format!("{}{number:08}", self.prefix())
    }

    /// Returns the name of a file that is being created.
    pub(super) fn tmp_name(self, number: u64) -> String {
        self.file_name(number) + TMP_SUFFIX
    }

    /// Returns the number in a file name, or `None` if the file is not of this kind. A name with a sign
    /// or with extra zeros, such as `samples-000000007`, is that of a copy.
    pub(crate) fn parse(self, file_name: &str) -> Option<u64> {
        let number = file_name.strip_prefix(self.prefix())?.parse().ok()?;
        (self.file_name(number) == file_name).then_some(number)
    }

    /// Returns the number in the name of a file of this kind that is being created.
    pub(super) fn parse_tmp(self, file_name: &str) -> Option<u64> {
        self.parse(file_name.strip_suffix(TMP_SUFFIX)?)
    }

    /// Returns the numbers of all files of this kind, ascending.
    pub(crate) fn numbers(self, file_names: &[String]) -> Vec<u64> {
        let mut numbers: Vec<u64> = file_names
            .iter()
            .filter_map(|name| self.parse(name))
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Returns `true` if segment `number + 1` exists. Then one process wrote both, and completed this
/// one first. `numbers` ascend and are of one kind. A process skips a number before its first
/// segment, and a rotation may skip some.
pub(crate) fn is_closed(numbers: &[u64], number: u64) -> bool {
    number
        .checked_add(1)
        .is_some_and(|next| numbers.binary_search(&next).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip_and_others_are_rejected() {
        for (kind, number, name) in [
            (SegmentKind::Samples, 7, "samples-00000007"),
            (SegmentKind::Series, 123_456_789, "series-123456789"),
            (SegmentKind::Checkpoint, 0, "checkpoint-00000000"),
        ] {
            assert_eq!(
                (kind.file_name(number).as_str(), kind.parse(name)),
                (name, Some(number))
            );
        }
        for bad in [
            "samples-7",
            "samples-0000000x",
            "samples-000000007",
            "samples-+0000007",
            "series-00000007",
            "samples-",
            "samples-99999999999999999999999",
        ] {
            assert_eq!(SegmentKind::Samples.parse(bad), None, "{bad}");
        }
        assert_eq!(
            SegmentKind::Checkpoint.parse("checkpoint-00000007.tmp"),
            None
        );
        assert_eq!(
            SegmentKind::Checkpoint.parse_tmp("checkpoint-00000007.tmp"),
            Some(7)
        );
        assert_eq!(
            SegmentKind::Checkpoint.tmp_name(7),
            "checkpoint-00000007.tmp"
        );
    }
}
