//! All of a log added up: files, records, what takes how many bytes, and what is wrong.

use std::collections::BTreeMap;
use std::path::Path;

use hashbrown::HashSet;

use super::content::{Content, SampleSizes};
use super::files::{LogFile, Role, list};
use super::read::{FileEnd, FoundFrame, read_file};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::fs::damage::{DamageKind, DamageReport};
use crate::sample::TimeRange;
use crate::wal::frame::{FRAME_HEADER_SIZE, HEADER_SIZE};
use crate::wal::reader::LargeFrames;
use crate::wal::{SegmentKind, checkpoint};

/// Tries to read a log without a file of it being removed meanwhile.
const TRIES_MAX: usize = 5;

/// What a log holds.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// What is wrong with files that count. That of files which a checkpoint replaces costs nothing and is left out.
    pub damage: DamageReport,
    /// The files, in the order of [`list`].
    pub files: Vec<FileSummary>,
    /// What takes how many bytes, in files that count.
    pub parts: PartSizes,
    /// Different series that are defined.
    pub n_series: u64,
    /// Samples, histograms and exemplars of segments whose series is not defined.
    pub n_orphaned: u64,
    /// Their series, and how often each comes; the first hundred thousand.
    pub orphans: BTreeMap<u64, u64>,
    /// Files that a server removed while they were to be read, after several tries.
    pub n_gone: u64,
}

/// Most series that are listed because they are not defined.
const ORPHANS_MAX: usize = 100_000;

/// What a file holds.
#[derive(Debug, Clone)]
pub struct FileSummary {
    /// The file.
    pub file: LogFile,
    /// Size, version, damage.
    pub end: FileEnd,
    /// Sound frames by the name of their record.
    pub records: BTreeMap<&'static str, u64>,
    /// Series that it defines.
    pub n_series: u64,
    /// Samples, native histograms included.
    pub n_samples: u64,
    /// Exemplars.
    pub n_exemplars: u64,
    /// From the oldest to the newest of its samples.
    pub times: Option<TimeRange>,
}

/// What takes how many bytes of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartSizes {
    /// Headers of files.
    pub file_headers: u64,
    /// Headers of the frames that hold samples.
    pub sample_frames: u64,
    /// Parts of the records of samples, in bits.
    pub samples: SampleSizes,
    /// Samples that these parts are of.
    pub n_samples: u64,
    /// Frames of histograms; likewise below.
    pub histograms: u64,
    /// Frames of start timestamps.
    pub starts: u64,
    /// Frames of exemplars.
    pub exemplars: u64,
    /// Frames of definitions in segments.
    pub series: u64,
    /// Frames of metadata.
    pub metadata: u64,
    /// Frames of checkpoints but for exemplars and metadata.
    pub checkpoints: u64,
    /// What is no sound frame, or of no known record.
    pub unsound: u64,
}

/// Reads the whole log of a data directory; `progress` is told of the bytes read and of all bytes.
///
/// # Errors
/// [`Error::Io`] if a folder cannot be listed.
pub fn survey(fs: &dyn Fs, dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Survey> {
    fs.list(dir).map_err(Error::io("list", dir))?;
    for _ in 1..TRIES_MAX {
        let found = survey_once(fs, dir, progress)?;
        if found.n_gone == 0 {
            return Ok(found);
        }
    }
    survey_once(fs, dir, progress)
}

fn survey_once(fs: &dyn Fs, dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Survey> {
    let files = list(fs, dir)?;
    let total = files.iter().map(|file| file.size(fs)).sum();
    let (mut survey, mut done) = (Survey::default(), 0);
    let mut defined = HashSet::new();
    let mut summaries: Vec<Option<FileSummary>> = vec![None; files.len()];
    // Definitions of all logs first: a series may be defined in an earlier epoch.
    for is_samples in [false, true] {
        for (place, file) in files.iter().enumerate() {
            if (file.kind == SegmentKind::Samples) == is_samples {
                let summary = survey.add_file(fs, file, &mut defined, &mut |n| progress(done + n, total))?;
                done += summary.end.size;
                summaries[place] = Some(summary);
            }
        }
    }
    survey.files = summaries.into_iter().flatten().collect();
    survey.n_series = defined.len() as u64;
    Ok(survey)
}

impl Survey {
    fn add_file(
        &mut self,
        fs: &dyn Fs,
        file: &LogFile,
        defined: &mut HashSet<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileSummary> {
        let (mut damage, mut summary) = (DamageReport::default(), FileSummary::of(file));
        let counts = file.role == Role::Counts;
        summary.end = read_file(fs, file, &mut damage, |frame| {
            summary.add(&frame);
            if counts {
                self.parts.add(file, &frame);
                self.find_series(&frame.content, defined);
            }
            progress(frame.offset + frame.size);
            Ok(())
        })?;
        if file.kind == SegmentKind::Checkpoint && damage.n_damaged() == 0 && !summary.end.is_gone {
            note_end(fs, file, &mut damage);
        }
        if counts {
            self.parts.file_headers += summary.end.version.map_or(0, |_| HEADER_SIZE as u64);
            self.parts.unsound += summary.end.damaged_bytes + summary.end.torn_bytes;
        }
        if !file.is_replaced() {
            self.damage.append(damage);
        }
        self.n_gone += u64::from(summary.end.is_gone);
        Ok(summary)
    }

    /// Notes which series are defined, and which are not though they should be.
    fn find_series(&mut self, content: &Content<'_>, defined: &mut HashSet<u64>) {
        let mut used = |series: u64| {
            if !defined.contains(&series) {
                self.n_orphaned += 1;
                if self.orphans.len() < ORPHANS_MAX || self.orphans.contains_key(&series) {
                    *self.orphans.entry(series).or_default() += 1;
                }
            }
        };
        match content {
            Content::Samples(samples, _) => samples.iter().for_each(|it| used(it.series)),
            Content::Histograms(found) => found.iter().for_each(|it| used(it.0)),
            // Those of series that have left are known by the checkpoint.
            Content::Exemplars(_) => {}
            Content::Series(found) => defined.extend(found.iter().map(|it| it.0)),
            Content::CheckpointSeries(found, _) => defined.extend(found.iter().map(|it| it.0)),
            _ => {}
        }
    }
}

/// Notes what only a look at the whole checkpoint tells: that it does not end as one should.
fn note_end(fs: &dyn Fs, file: &LogFile, damage: &mut DamageReport) {
    if let Ok(Some(found)) = checkpoint::examine(fs, &file.path, &LargeFrames::default()) {
        damage.push(&file.path, found.offset, DamageKind::Corrupt, format!("the checkpoint {}", found.reason));
    }
}

impl FileSummary {
    fn of(file: &LogFile) -> Self {
        let (end, records) = (FileEnd::default(), BTreeMap::new());
        Self { file: file.clone(), end, records, n_series: 0, n_samples: 0, n_exemplars: 0, times: None }
    }

    fn add(&mut self, frame: &FoundFrame<'_>) {
        *self.records.entry(frame.content.name()).or_default() += 1;
        match &frame.content {
            Content::Series(found) => self.n_series += found.len() as u64,
            Content::CheckpointSeries(found, n_lost) => self.n_series += found.len() as u64 + n_lost,
            Content::Samples(found, _) => found.iter().for_each(|it| self.add_sample(it.sample.timestamp_ms)),
            Content::Histograms(found) => found.iter().for_each(|it| self.add_sample(it.1)),
            Content::Exemplars(found) => self.n_exemplars += found.len() as u64,
            Content::CheckpointExemplars(found) => {
                self.n_exemplars += found.iter().map(|(_, of_series)| of_series.len() as u64).sum::<u64>();
            }
            _ => {}
        }
    }

    fn add_sample(&mut self, timestamp_ms: i64) {
        self.n_samples += 1;
        let times = self.times.get_or_insert(TimeRange { start_ms: timestamp_ms, end_ms: timestamp_ms });
        times.start_ms = times.start_ms.min(timestamp_ms);
        times.end_ms = times.end_ms.max(timestamp_ms);
    }
}

impl PartSizes {
    fn add(&mut self, file: &LogFile, frame: &FoundFrame<'_>) {
        let is_checkpoint = file.kind == SegmentKind::Checkpoint;
        let part = match &frame.content {
            Content::Samples(found, sizes) => {
                self.n_samples += found.len() as u64;
                self.samples.add(*sizes);
                self.sample_frames += FRAME_HEADER_SIZE as u64;
                return;
            }
            Content::Histograms(_) => &mut self.histograms,
            Content::Starts(_) => &mut self.starts,
            Content::Exemplars(_) | Content::CheckpointExemplars(_) => &mut self.exemplars,
            Content::Metadata(_) => &mut self.metadata,
            Content::Unknown => &mut self.unsound,
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
