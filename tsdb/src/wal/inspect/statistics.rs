//! Statistics of a WAL: files, records, sizes and damage.

use std::collections::BTreeMap;
use std::path::Path;

use hashbrown::{HashMap, HashSet};
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_model::{Labels, TimeRange};

use super::content::Content;
use super::duplicates::{self, Newest};
use super::files::{Role, WalFile, list};
use super::missing::missing;
use super::read::{FileIntegrity, FoundFrame, read_file};
use crate::error::{Error, Result};
use crate::wal::checkpoint;
use crate::wal::epoch::log_of;
use crate::wal::file_name::SegmentKind;
use crate::wal::frame::{FRAME_HEADER_SIZE, HEADER_SIZE};
use crate::wal::missing::MissingFiles;
use crate::wal::reader::LargeFrameLock;
use crate::wal::record::SampleSizes;

/// Maximum attempts to read a WAL while a server removes files.
const ATTEMPTS_MAX: usize = 5;

/// Statistics and damage of a WAL.
#[derive(Debug, Clone, Default)]
pub struct WalInspection {
    /// Damage of live files. Damage of superseded files has no effect and is not listed.
    pub damage: DamageReport,
    /// The files, in the order of [`list`].
    pub files: Vec<FileSummary>,
    /// Sizes of the parts of live files.
    pub parts: PartSizes,
    /// Number of series defined.
    pub n_series: u64,
    /// Number of samples and histograms whose series is not defined.
    pub n_unknown_samples: u64,
    /// Number of samples by undefined series ref, for the first 100,000 of these series.
    pub unknown_series: BTreeMap<u64, u64>,
    /// Number of samples of defined series with a timestamp that their series has already.
    pub n_duplicates: u64,
    /// Number of gaps in the names of the files, and of segments without a header. What they had is
    /// unknown.
    pub n_file_gaps: u64,
    /// Number of files that a server removed before the last attempt read them.
    pub n_removed_files: u64,
}

/// Maximum number of undefined series that are listed.
const UNKNOWN_SERIES_MAX: usize = 100_000;

/// Statistics of a file.
#[derive(Debug, Clone)]
pub struct FileSummary {
    /// The file.
    pub file: WalFile,
    /// Size, version, damage.
    pub integrity: FileIntegrity,
    /// Valid frames by record name.
    pub records: BTreeMap<&'static str, u64>,
    /// Number of series that the file defines.
    pub n_series: u64,
    /// Samples, native histograms included.
    pub n_samples: u64,
    /// Exemplars.
    pub n_exemplars: u64,
    /// Time range of the samples.
    pub times: Option<TimeRange>,
}

/// Sizes of the parts of a WAL, in bytes unless noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartSizes {
    /// File headers.
    pub file_headers: u64,
    /// Headers of samples frames.
    pub sample_frames: u64,
    /// Parts of samples records, in bits.
    pub samples: SampleSizes,
    /// Number of samples in these records.
    pub n_samples: u64,
    /// Histogram frames, headers included, as in the fields below.
    pub histograms: u64,
    /// Start timestamp frames.
    pub start_timestamps: u64,
    /// Exemplar frames.
    pub exemplars: u64,
    /// Series frames in segments.
    pub series: u64,
    /// Metadata frames.
    pub metadata: u64,
    /// Checkpoint frames except exemplars and metadata.
    pub checkpoints: u64,
    /// Bytes that are not a valid frame, and frames of unknown records.
    pub damaged: u64,
}

/// Reads the whole WAL of a data directory. `progress` gets the bytes read and the total.
///
/// # Errors
/// [`Error::Io`] if a directory cannot be listed.
pub fn inspect(
    fs: &dyn Fs,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<WalInspection> {
    // Fails if the directory is missing, which `list` takes for an empty one.
    fs.list(dir).map_err(Error::io("list", dir))?;
    for _ in 1..ATTEMPTS_MAX {
        let found = inspect_once(fs, dir, progress)?;
        if found.n_removed_files == 0 {
            return Ok(found);
        }
    }
    inspect_once(fs, dir, progress)
}

fn inspect_once(
    fs: &dyn Fs,
    dir: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<WalInspection> {
    let files = list(fs, dir)?;
    let total = files.iter().map(|file| file.size(fs)).sum();
    let mut inspection = WalInspection::default();
    let mut done = 0;
    let newest_epoch = files.iter().map(|file| file.epoch).max().unwrap_or(0);
    let mut defined = Definitions {
        newest_epoch,
        ..Definitions::default()
    };
    let mut summaries: Vec<Option<FileSummary>> = vec![None; files.len()];
    // All definitions first: a series may be defined in an earlier epoch.
    for is_samples in [false, true] {
        for (idx, file) in files.iter().enumerate() {
            if (file.kind == SegmentKind::Samples) != is_samples {
                continue;
            }
            let mut file_progress = |n| progress(done + n, total);
            let summary = inspection.add_file(fs, file, &mut defined, &mut file_progress)?;
            done += summary.integrity.size;
            summaries[idx] = Some(summary);
        }
    }
    inspection.files = summaries.into_iter().flatten().collect();
    inspection.n_series = defined.len();
    inspection.n_duplicates =
        duplicates::count(fs, &files, defined.n_not_newer, &|file, series| {
            defined.contains(file, series)
        })?;
    for MissingFiles { path, reason } in missing(fs, dir, &files)? {
        inspection.n_file_gaps += 1;
        let kind = DamageKind::Missing;
        inspection.damage.push(&path, 0, kind, reason);
    }
    Ok(inspection)
}

impl WalInspection {
    fn add_file(
        &mut self,
        fs: &dyn Fs,
        file: &WalFile,
        defined: &mut Definitions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileSummary> {
        let mut damage = DamageReport::default();
        let mut summary = FileSummary::of(file);
        let mut n_misplaced = 0;
        let is_live = file.role == Role::Live;
        summary.integrity = read_file(fs, file, &mut damage, |frame| {
            summary.add(&frame);
            if is_live {
                self.parts.add(file, &frame);
                self.check_series(file, &frame.content, defined);
            }
            n_misplaced += n_misplaced_series(file, &frame.content);
            progress(frame.offset + frame.size);
            Ok(())
        })?;
        if file.kind == SegmentKind::Checkpoint
            && damage.n_damaged() == 0
            && !summary.integrity.is_removed
        {
            check_end(fs, file, &mut damage);
        }
        if n_misplaced > 0 {
            let reason = format!(
                "{n_misplaced} of {} series belong to another log: the file was exchanged or moved",
                summary.n_series
            );
            damage.push(&file.path, 0, DamageKind::Corrupt, reason);
        }
        if is_live {
            self.parts.file_headers += summary.integrity.version.map_or(0, |_| HEADER_SIZE as u64);
            self.parts.damaged += summary.integrity.damaged_bytes + summary.integrity.torn_bytes;
            self.n_file_gaps += u64::from(summary.integrity.has_no_header);
        }
        if file.role != Role::Superseded {
            self.damage.append(damage);
        }
        self.n_removed_files += u64::from(summary.integrity.is_removed);
        Ok(summary)
    }

    /// Collects the defined series, and counts samples of undefined ones.
    fn check_series(&mut self, file: &WalFile, content: &Content<'_>, defined: &mut Definitions) {
        let mut used = |series: u64, timestamp_ms: i64| {
            if defined.contains(file, series) {
                let is_newer = defined.newest.is_newer(series, timestamp_ms);
                defined.n_not_newer += u64::from(!is_newer);
            } else {
                self.n_unknown_samples += 1;
                if self.unknown_series.len() < UNKNOWN_SERIES_MAX
                    || self.unknown_series.contains_key(&series)
                {
                    *self.unknown_series.entry(series).or_default() += 1;
                }
            }
        };
        match content {
            Content::Samples(samples, _) => {
                for sample in *samples {
                    used(sample.series, sample.sample.timestamp_ms);
                }
            }
            Content::Histograms(found) => {
                for &(series, timestamp_ms, _) in found {
                    used(series, timestamp_ms);
                }
            }
            // The ref of an exemplar may be undefined, as that of an evicted series: a checkpoint
            // repeats the exemplar with labels. One that no checkpoint has is not counted here.
            Content::Exemplars(_) => {}
            Content::Series(found) => defined.set_of(file).extend(found.iter().map(|it| it.0)),
            Content::CheckpointSeries(found, _) => {
                defined.set_of(file).extend(found.iter().map(|it| it.0))
            }
            _ => {}
        }
    }
}

/// The series that a replay finds: in the newest epoch those of the same log, and those of all logs
/// of earlier epochs.
#[derive(Debug, Default)]
struct Definitions {
    newest_epoch: u32,
    /// By log of the newest epoch; `None` for earlier epochs.
    by_log: HashMap<Option<usize>, HashSet<u64>>,
    newest: Newest,
    /// Number of samples that are not newer than the ones before of their series.
    n_not_newer: u64,
}

impl Definitions {
    /// Returns the set to which the series of `file` are added.
    fn set_of(&mut self, file: &WalFile) -> &mut HashSet<u64> {
        self.by_log.entry(self.log(file)).or_default()
    }

    fn contains(&self, file: &WalFile, series: u64) -> bool {
        let is_in = |log| {
            self.by_log
                .get(&log)
                .is_some_and(|defined| defined.contains(&series))
        };
        is_in(self.log(file)) || is_in(None)
    }

    fn len(&self) -> u64 {
        let newest = || {
            self.by_log
                .iter()
                .filter_map(|(log, defined)| log.map(|_| defined))
        };
        let earlier = self.by_log.get(&None).into_iter().flatten();
        let n_earlier = earlier
            .filter(|&series| !newest().any(|defined| defined.contains(series)))
            .count();
        newest().map(HashSet::len).sum::<usize>() as u64 + n_earlier as u64
    }

    fn log(&self, file: &WalFile) -> Option<usize> {
        (file.epoch == self.newest_epoch).then_some(file.log)
    }
}

/// Returns the number of defined series whose labels belong to another log of the epoch.
fn n_misplaced_series(file: &WalFile, content: &Content<'_>) -> u64 {
    // Another number of logs is damage, for which `log_of` is not defined.
    let is_possible = file.n_logs.is_power_of_two();
    let is_misplaced = |labels: &&Labels| is_possible && log_of(labels, file.n_logs) != file.log;
    match content {
        Content::Series(found) => found.iter().map(|it| &it.1).filter(is_misplaced).count() as u64,
        Content::CheckpointSeries(found, _) => {
            found.iter().map(|it| &it.2).filter(is_misplaced).count() as u64
        }
        _ => 0,
    }
}

/// Records a checkpoint that is not complete.
fn check_end(fs: &dyn Fs, file: &WalFile, damage: &mut DamageReport) {
    if let Ok(Some(found)) = checkpoint::examine(fs, &file.path, &LargeFrameLock::default()) {
        damage.push(
            &file.path,
            found.offset,
            DamageKind::Corrupt,
            format!("the checkpoint {}", found.reason),
        );
    }
}

impl FileSummary {
    fn of(file: &WalFile) -> Self {
        Self {
            file: file.clone(),
            integrity: FileIntegrity::default(),
            records: BTreeMap::new(),
            n_series: 0,
            n_samples: 0,
            n_exemplars: 0,
            times: None,
        }
    }

    fn add(&mut self, frame: &FoundFrame<'_>) {
        *self.records.entry(frame.content.name()).or_default() += 1;
        match &frame.content {
            Content::Series(found) => self.n_series += found.len() as u64,
            Content::CheckpointSeries(found, n_lost) => {
                self.n_series += found.len() as u64 + n_lost
            }
            Content::Samples(found, _) => {
                for logged in *found {
                    self.add_sample(logged.sample.timestamp_ms);
                }
            }
            Content::Histograms(found) => {
                for &(_, timestamp_ms, _) in found {
                    self.add_sample(timestamp_ms);
                }
            }
            Content::Exemplars(found) => self.n_exemplars += found.len() as u64,
            Content::CheckpointExemplars(found) => {
                self.n_exemplars += found
                    .iter()
                    .map(|(_, exemplars)| exemplars.len() as u64)
                    .sum::<u64>();
            }
            _ => {}
        }
    }

    fn add_sample(&mut self, timestamp_ms: i64) {
        self.n_samples += 1;
        let time = TimeRange::at(timestamp_ms);
        self.times = Some(self.times.map_or(time, |times| times.hull(time)));
    }
}

impl PartSizes {
    fn add(&mut self, file: &WalFile, frame: &FoundFrame<'_>) {
        let is_checkpoint = file.kind == SegmentKind::Checkpoint;
        let part = match &frame.content {
            Content::Samples(found, sizes) => {
                self.n_samples += found.len() as u64;
                self.samples.add(*sizes);
                self.sample_frames += FRAME_HEADER_SIZE as u64;
                return;
            }
            Content::Histograms(_) => &mut self.histograms,
            Content::StartTimestamps(_) => &mut self.start_timestamps,
            Content::Exemplars(_) | Content::CheckpointExemplars(_) => &mut self.exemplars,
            Content::Metadata(_) => &mut self.metadata,
            Content::Unknown => &mut self.damaged,
            _ if is_checkpoint => &mut self.checkpoints,
            _ => &mut self.series,
        };
        *part += frame.size;
    }
}

impl SampleSizes {
    fn add(&mut self, other: Self) {
        self.head += other.head;
        self.refs += other.refs;
        self.times += other.times;
        self.values += other.values;
    }
}
