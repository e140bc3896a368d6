//! Lists the segments of a log.

use std::path::Path;

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, list_if_exists};
use varve_tsdb::Result;

use super::reader::SegmentReader;
use super::segment::Segment;

const CHECKPOINT: &str = "checkpoint.";

/// The segments of a WAL, in the order of replay.
#[derive(Debug, Clone, Default)]
pub struct WalFiles {
    /// Segments of the newest checkpoint, then those after it.
    pub segments: Vec<Segment>,
    /// Number of the newest checkpoint.
    pub checkpoint: Option<u64>,
}

/// A log of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// The write-ahead log. It begins at segment 0, or after a checkpoint.
    Wal,
    /// The write-behind log. Prometheus removes its oldest segments without a checkpoint.
    Wbl,
}

impl LogKind {
    /// Returns the name of its directory in the data directory.
    #[must_use]
    pub fn dir_name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Wbl => "wbl",
        }
    }
}

impl WalFiles {
    /// Lists the segments of a log of the data directory `data_dir`. A missing log has none. Reports
    /// missing segments, also at the beginning. Skips segments that the checkpoint replaces.
    ///
    /// A checkpoint counts by its content: one without records is reported and ignored, and if one
    /// is damaged while the segments that it replaces are still there, they are read.
    ///
    /// # Errors
    /// [`Error::Io`](varve_tsdb::Error::Io) if a directory cannot be listed.
    pub fn list(
        fs: &dyn Fs,
        data_dir: &Path,
        log: LogKind,
        damage: &mut DamageReport,
    ) -> Result<Self> {
        let dir = data_dir.join(log.dir_name());
        let mut own = numbered(fs, &dir, false)?;
        let checkpoint = Checkpoint::choose(fs, &dir, &own, damage)?;
        let covered = checkpoint.as_ref().map(|checkpoint| checkpoint.number);
        if checkpoint.as_ref().is_some_and(|it| !it.is_damaged) {
            own.retain(|segment| covered.is_none_or(|covered| segment.number > covered));
        }
        let first = match (covered, log) {
            (Some(covered), _) => Some(covered + 1),
            (None, LogKind::Wal) => Some(0),
            (None, LogKind::Wbl) => None,
        };
        report_missing(&dir, &own, first, damage);
        if let Some(covered) = covered
            && own.is_empty()
        {
            let reason = format!("the segments after checkpoint {covered} are missing");
            damage.push(&dir, 0, DamageKind::Missing, reason);
        }
        let mut segments = checkpoint.map_or_else(Vec::new, |checkpoint| checkpoint.segments);
        segments.append(&mut own);
        Ok(Self {
            segments,
            checkpoint: covered,
        })
    }

    /// Lists the segments of the WAL and then of the WBL of the data directory `dir`.
    ///
    /// # Errors
    /// [`Error::Io`](varve_tsdb::Error::Io) if a directory cannot be listed.
    pub(crate) fn list_all(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<Self> {
        let mut files = Self::list(fs, dir, LogKind::Wal, damage)?;
        files
            .segments
            .extend(Self::list(fs, dir, LogKind::Wbl, damage)?.segments);
        Ok(files)
    }
}

/// A checkpoint with records.
struct Checkpoint {
    number: u64,
    segments: Vec<Segment>,
    /// It is damaged, and some of the segments that it replaces are still there.
    is_damaged: bool,
}

impl Checkpoint {
    /// Returns the newest checkpoint that the segments `own` of its log do not replace. Reports the
    /// others.
    fn choose(
        fs: &dyn Fs,
        dir: &Path,
        own: &[Segment],
        damage: &mut DamageReport,
    ) -> Result<Option<Self>> {
        let names = list_if_exists(fs, dir)?;
        let mut numbers = Vec::new();
        for name in &names {
            let digits = name.strip_prefix(CHECKPOINT);
            numbers.extend(digits.and_then(number).map(|number| (number, name)));
        }
        numbers.sort_unstable();
        for (number, name) in numbers.into_iter().rev() {
            let path = dir.join(name);
            let segments = numbered(fs, &path, true)?;
            // Usually its segments are gone, and its first record tells that it is not empty.
            let replaced = own.iter().filter(|segment| segment.number <= number);
            let n_replaced = replaced.count() as u64;
            let content = CheckpointContent::read(fs, &path, &segments, n_replaced > 0);
            match content {
                CheckpointContent::Empty => {
                    let reason = "the checkpoint has no records";
                    damage.push(&path, 0, DamageKind::Corrupt, reason);
                }
                CheckpointContent::Damaged if n_replaced == number + 1 => {
                    let reason = format!(
                        "the checkpoint is damaged; segments 0 to {number}, which it replaces, are read instead"
                    );
                    damage.push(&path, 0, DamageKind::Corrupt, reason);
                }
                _ => {
                    report_missing(&path, &segments, Some(0), damage);
                    return Ok(Some(Self {
                        number,
                        segments,
                        is_damaged: content == CheckpointContent::Damaged,
                    }));
                }
            }
        }
        Ok(None)
    }
}

/// What can be read of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointContent {
    Empty,
    Damaged,
    Records,
}

impl CheckpointContent {
    /// Reads a checkpoint, entirely or up to its first record.
    fn read(fs: &dyn Fs, path: &Path, segments: &[Segment], reads_all: bool) -> Self {
        let mut damage = DamageReport::default();
        report_missing(path, segments, Some(0), &mut damage);
        let mut has_records = false;
        for segment in segments {
            let Ok(mut reader) = SegmentReader::open(fs, segment) else {
                damage.push(&segment.path, 0, DamageKind::Corrupt, "cannot be opened");
                continue;
            };
            while let Some(record) = reader.next(&mut damage) {
                if record.compression.decode(&record.bytes).is_none() {
                    damage.push(&segment.path, 0, DamageKind::Corrupt, "not decompressed");
                    continue;
                }
                if !reads_all {
                    return Self::Records;
                }
                has_records = true;
            }
        }
        if !has_records {
            return Self::Empty;
        }
        if damage.entries().is_empty() {
            Self::Records
        } else {
            Self::Damaged
        }
    }
}

/// Returns the segments of a directory by number.
fn numbered(fs: &dyn Fs, dir: &Path, is_checkpoint: bool) -> Result<Vec<Segment>> {
    let mut files: Vec<(u64, String)> = list_if_exists(fs, dir)?
        .into_iter()
        .filter_map(|name| Some((number(&name)?, name)))
        .collect();
    files.sort_unstable();
    let last = files.last().map(|(number, _)| *number);
    let mut segments = Vec::new();
    for (number, name) in files {
        segments.push(Segment {
            path: dir.join(name),
            number,
            is_last: Some(number) == last && !is_checkpoint,
            is_checkpoint,
        });
    }
    Ok(segments)
}

/// Reports gaps in the numbers of segments. If `first` is given, a log with segments begins there or
/// before.
fn report_missing(dir: &Path, segments: &[Segment], first: Option<u64>, damage: &mut DamageReport) {
    let mut next = first;
    for segment in segments {
        if let Some(next) = next
            && segment.number > next
        {
            let last = segment.number - 1;
            let why = if Some(next) != first {
                ""
            } else if next == 0 {
                " at the beginning"
            } else {
                " after the checkpoint"
            };
            let reason = format!("segments {next} to {last} are missing{why}");
            damage.push(dir, 0, DamageKind::Missing, reason);
        }
        next = Some(segment.number + 1);
    }
}

/// Parses a numeric file name.
fn number(name: &str) -> Option<u64> {
    let digits =
        !name.is_empty() && name.len() <= 18 && name.bytes().all(|byte| byte.is_ascii_digit());
    if digits { name.parse().ok() } else { None }
}
