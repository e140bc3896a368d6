//! Mends a log of Prometheus: every record that is whole stays, the rest is left out, and the original is kept.
//!
//! Prometheus itself removes all segments behind the first damage. Here a damaged segment is written anew with the records
//! that can be read and decoded, and takes the place of the original, which gets a second name in [`QUARANTINE`] first. Where
//! a segment is missing an empty one closes the gap, without which Prometheus does not start.
//!
//! Crash: at every moment each segment is there, the original or the mended one. Unfinished files are made anew.

use std::path::{Path, PathBuf};

use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::{Error, Result, originals};

use super::wal::{
    Compression, PAGE_SIZE, RawRecord, RecordType, Segment, SegmentReader, WalFiles, decode_definitions,
    decode_exemplars, decode_histograms, decode_metadata, decode_samples, decode_tombstones,
};

/// The folder beside the log that keeps originals.
pub const QUARANTINE: &str = "quarantine";
const HEADER_SIZE: usize = 7;

/// What was mended, or would be.
#[derive(Debug, Clone, Default)]
pub struct Repair {
    /// What is damaged, and where.
    pub damage: DamageReport,
    /// The segments that are written anew.
    pub mended: Vec<MendedSegment>,
    /// Segments that are missing, and become empty ones.
    pub filled: Vec<PathBuf>,
}

/// A segment that is written anew.
#[derive(Debug, Clone)]
pub struct MendedSegment {
    /// The segment.
    pub path: PathBuf,
    /// Where the original is kept.
    pub original: PathBuf,
    /// Records that stay.
    pub n_kept: u64,
}

/// Mends the logs of a data directory that no Prometheus uses; without `write` it only says what it would do.
/// `progress` is told of the bytes of the segments that were looked at, and of all of them.
///
/// # Errors
/// [`Error::Locked`] if a Prometheus has the directory open, [`Error::Io`].
pub fn repair(fs: &dyn Fs, dir: &Path, write: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Repair> {
    let lock_path = dir.join("lock");
    let _lock = match write {
        true => Some(fs.lock(&lock_path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: lock_path },
            _ => Error::io("lock", &lock_path)(error),
        })?),
        false => None,
    };
    let mut repair = Repair::default();
    let mut logs = Vec::new();
    for log in ["wal", "wbl"] {
        logs.push((log, WalFiles::list(fs, &dir.join(log), &mut repair.damage)?));
    }
    let total = logs.iter().flat_map(|(_, files)| &files.segments).map(|segment| segment.size(fs)).sum();
    let mut done = 0;
    for (log, files) in &logs {
        for segment in &files.segments {
            done += segment.size(fs);
            repair.segment(fs, &dir.join(QUARANTINE).join(log), segment, write)?;
            progress(done, total);
        }
        repair.fill(fs, &dir.join(log), files, write)?;
    }
    Ok(repair)
}

impl Repair {
    fn segment(&mut self, fs: &dyn Fs, quarantine: &Path, segment: &Segment, write: bool) -> Result<()> {
        let mut found = DamageReport::default();
        let n_kept = mend(fs, segment, None, &mut found)?;
        if found.entries().is_empty() {
            return Ok(());
        }
        let folder = if segment.is_checkpoint { quarantine.join("checkpoint") } else { quarantine.to_owned() };
        let name = segment.path.file_name().unwrap_or_default().to_string_lossy();
        let mut original = folder.join(&*name);
        self.damage.append(found);
        if write {
            let tmp = segment.path.with_extension("mended.tmp");
            remove(fs, &tmp)?;
            mend(fs, segment, Some(&tmp), &mut DamageReport::default())?;
            original = originals::keep(fs, &segment.path, &folder, &name)?;
            originals::replace(fs, &tmp, &segment.path)?;
        }
        self.mended.push(MendedSegment { path: segment.path.clone(), original, n_kept });
        Ok(())
    }

    /// Closes the gaps between the numbers of segments.
    fn fill(&mut self, fs: &dyn Fs, dir: &Path, files: &WalFiles, write: bool) -> Result<()> {
        let own: Vec<_> = files.segments.iter().filter(|segment| !segment.is_checkpoint).collect();
        for pair in own.windows(2) {
            for number in pair[0].number + 1..pair[1].number.min(pair[0].number + GAP_MAX) {
                let path = dir.join(format!("{number:08}"));
                if write {
                    let file = fs.create(&path).map_err(Error::io("create", &path))?;
                    file.sync().map_err(Error::io("sync", &path))?;
                    fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
                }
                self.filled.push(path);
            }
        }
        Ok(())
    }
}

/// Most empty segments in a row: a larger gap is a segment with a wrong name.
const GAP_MAX: u64 = 10_000;

/// Reads a segment and writes its sound records to `target`; returns how many there are.
fn mend(fs: &dyn Fs, segment: &Segment, target: Option<&Path>, damage: &mut DamageReport) -> Result<u64> {
    let mut reader = SegmentReader::open(fs, segment)?;
    let file = target.map(|path| fs.create(path).map_err(Error::io("create", path))).transpose()?;
    let (mut pages, mut n_kept) = (Pages::default(), 0);
    while let Some(record) = reader.next(damage) {
        if let Some(reason) = unreadable(&record) {
            damage.push(&segment.path, record.offset, DamageKind::Corrupt, reason);
            continue;
        }
        n_kept += 1;
        let (Some(file), Some(path)) = (&file, target) else { continue };
        pages.put(&record);
        file.append(&pages.bytes).map_err(Error::io("write", path))?;
        pages.bytes.clear();
    }
    if let (Some(file), Some(path)) = (&file, target) {
        file.sync().map_err(Error::io("sync", path))?;
    }
    Ok(n_kept)
}

/// Tells why Prometheus would stop at a record whose checksum is right. It passes over types that it does not know.
fn unreadable(record: &RawRecord) -> Option<String> {
    let Some(bytes) = record.compression.decode(&record.bytes) else {
        return Some("a record cannot be decompressed".to_owned());
    };
    let bad = match RecordType::of(&bytes)? {
        RecordType::Series => decode_definitions(&bytes, &mut Vec::new()).err(),
        RecordType::Samples | RecordType::SamplesV2 => decode_samples(&bytes, &mut Vec::new()).err(),
        RecordType::Tombstones => decode_tombstones(&bytes, &mut Vec::new()).err(),
        RecordType::Exemplars => decode_exemplars(&bytes, &mut Vec::new()).err(),
        RecordType::Metadata => decode_metadata(&bytes, &mut Vec::new()).err(),
        RecordType::MmapMarkers => None,
        RecordType::Histograms
        | RecordType::FloatHistograms
        | RecordType::CustomHistograms
        | RecordType::CustomFloatHistograms
        | RecordType::HistogramsV2
        | RecordType::FloatHistogramsV2 => decode_histograms(&bytes, &mut Vec::new()).err(),
    };
    bad.map(|bad| bad.to_string())
}

/// Records as pages of fragments.
#[derive(Debug, Default)]
struct Pages {
    /// What was not written yet.
    bytes: Vec<u8>,
    /// Bytes of the open page that are in use.
    used: usize,
}

impl Pages {
    fn put(&mut self, record: &RawRecord) {
        let flag = match record.compression {
            Compression::None => 0,
            Compression::Snappy => 1 << 3,
            Compression::Zstd => 1 << 4,
        };
        let (mut rest, mut is_first) = (&record.bytes[..], true);
        while is_first || !rest.is_empty() {
            let left = PAGE_SIZE - self.used;
            if left < HEADER_SIZE {
                self.bytes.resize(self.bytes.len() + left, 0);
                self.used = 0;
                continue;
            }
            let (data, behind) = rest.split_at(rest.len().min(left - HEADER_SIZE));
            let kind = match (is_first, behind.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            self.bytes.push(kind | flag);
            // A page is smaller than what two bytes hold.
            self.bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.bytes.extend_from_slice(&crc32c::crc32c(data).to_be_bytes());
            self.bytes.extend_from_slice(data);
            self.used = (self.used + HEADER_SIZE + data.len()) % PAGE_SIZE;
            (rest, is_first) = (behind, false);
        }
    }
}

fn remove(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::fs::RealFs;

    fn sample_record(series: u64) -> Vec<u8> {
        [&[2][..], &series.to_be_bytes(), &1000_u64.to_be_bytes(), &[0, 0], &1.0_f64.to_bits().to_be_bytes()].concat()
    }

    /// Records of one page and one that spans three; a damaged one ends too early.
    fn segment(is_damaged: bool) -> Vec<u8> {
        let mut pages = Pages::default();
        for i in 0..2000 {
            let record = if i == 1000 && is_damaged { sample_record(1)[..17].to_vec() } else { sample_record(i) };
            let bytes = if i == 1500 { [&[99][..], &vec![7; 70_000]].concat() } else { record };
            pages.put(&RawRecord { offset: 0, compression: Compression::None, bytes });
        }
        pages.bytes
    }

    #[test]
    fn what_is_whole_stays_and_the_original_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let wal = dir.path().join("wal");
        std::fs::create_dir(&wal).unwrap();
        let mut bytes = segment(true);
        bytes[40_000] ^= 1;
        std::fs::write(wal.join("00000003"), &bytes).unwrap();
        std::fs::write(wal.join("00000006"), segment(false)).unwrap();
        let dry = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
        assert_eq!((dry.mended.len(), dry.mended[0].n_kept, dry.filled.len()), (1, 1998, 2));
        assert_eq!(std::fs::read(wal.join("00000003")).unwrap(), bytes, "a dry run changes nothing");
        let done = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
        assert_eq!(std::fs::read(&done.mended[0].original).unwrap(), bytes);
        let again = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
        assert_eq!((again.mended.len(), again.filled.len(), again.damage.n_damaged()), (0, 0, 0));
        assert_eq!(std::fs::read(wal.join("00000006")).unwrap(), segment(false), "what is sound is not touched");
        assert_eq!(std::fs::read_dir(&wal).unwrap().count(), 4);
    }

    #[test]
    fn a_directory_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = RealFs.lock(&dir.path().join("lock")).unwrap();
        assert!(matches!(repair(&RealFs, dir.path(), true, &mut |_, _| {}), Err(Error::Locked { .. })));
    }
}
