//! Repairs a WAL and WBL: keeps all valid records, and saves the original.
//!
//! Prometheus deletes all segments after the first damage. This repair first links the original
//! into [`QUARANTINE`], then rewrites a damaged segment with the records that decode. A missing
//! segment is replaced by an empty one, because Prometheus does not start with a gap.
//!
//! Crash: at any time each segment exists, either the original or the repaired one. Unfinished
//! files are overwritten.

use std::path::{Path, PathBuf};

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, remove_if_exists, replace_file, save_original};
use varve_tsdb::{Error, Result};

use super::wal::{
    LogKind, PageWriter, RawRecord, RecordContent, RecordType, Segment, SegmentReader, WalFiles,
};

/// The directory in the data directory for the originals of repaired segments.
pub const QUARANTINE: &str = "quarantine";

/// Result of a repair, or of a dry run.
#[derive(Debug, Clone, Default)]
pub struct Repair {
    /// Damage in the segments.
    pub damage: DamageReport,
    /// Segments that are rewritten.
    pub repaired: Vec<RepairedSegment>,
    /// Missing segments, which are created empty.
    pub created: Vec<PathBuf>,
}

/// A segment that is rewritten.
#[derive(Debug, Clone)]
pub struct RepairedSegment {
    /// Path of the segment.
    pub path: PathBuf,
    /// Path of the saved original.
    pub backup: PathBuf,
    /// Number of records kept.
    pub n_records: u64,
}

/// Repairs WAL and WBL of a data directory that no Prometheus has open. If `write` is `false`, only
/// reports what it would do. Calls `progress` with the bytes read so far and in total.
///
/// # Errors
/// [`Error::Locked`] if a Prometheus has the directory open, [`Error::Io`].
pub fn repair(
    fs: &dyn Fs,
    dir: &Path,
    write: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Repair> {
    let lock_path = dir.join("lock");
    let mut _lock = None;
    if write {
        _lock = Some(fs.lock(&lock_path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: lock_path },
            _ => Error::io("lock", &lock_path)(error),
        })?);
    }
    let mut repair = Repair::default();
    let mut logs = Vec::new();
    for log in [LogKind::Wal, LogKind::Wbl] {
        logs.push((log, WalFiles::list(fs, dir, log, &mut repair.damage)?));
    }
    let total = logs
        .iter()
        .flat_map(|(_, files)| &files.segments)
        .map(|segment| segment.size(fs))
        .sum();
    let mut done = 0;
    for (log, files) in &logs {
        for segment in &files.segments {
            done += segment.size(fs);
            repair.segment(
                fs,
                &dir.join(QUARANTINE).join(log.dir_name()),
                segment,
                write,
            )?;
            progress(done, total);
        }
        repair.create_missing(fs, dir, *log, files, write)?;
    }
    Ok(repair)
}

impl Repair {
    fn segment(
        &mut self,
        fs: &dyn Fs,
        quarantine: &Path,
        segment: &Segment,
        write: bool,
    ) -> Result<()> {
        let mut found = DamageReport::default();
        let n_records = rewrite(fs, segment, None, &mut found)?;
        if found.entries().is_empty() {
            return Ok(());
        }
        let saved_to = if segment.is_checkpoint {
            quarantine.join("checkpoint")
        } else {
            quarantine.to_owned()
        };
        let name = segment
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let mut backup = saved_to.join(&*name);
        self.damage.append(found);
        if write {
            let tmp = segment.path.with_extension("repaired.tmp");
            remove_if_exists(fs, &tmp)?;
            rewrite(fs, segment, Some(&tmp), &mut DamageReport::default())?;
            backup = save_original(fs, &segment.path, &saved_to, &name)?;
            replace_file(fs, &tmp, &segment.path)?;
        }
        self.repaired.push(RepairedSegment {
            path: segment.path.clone(),
            backup,
            n_records,
        });
        Ok(())
    }

    /// Creates missing segments.
    fn create_missing(
        &mut self,
        fs: &dyn Fs,
        data_dir: &Path,
        log: LogKind,
        files: &WalFiles,
        write: bool,
    ) -> Result<()> {
        let dir = &data_dir.join(log.dir_name());
        let mut next = match (files.checkpoint, log) {
            (Some(covered), _) => Some(covered + 1),
            (None, LogKind::Wal) => Some(0),
            (None, LogKind::Wbl) => None,
        };
        for segment in files.segments.iter().filter(|it| !it.is_checkpoint) {
            let first = next.unwrap_or(segment.number);
            for number in first..segment.number.min(first.saturating_add(GAP_MAX)) {
                let path = dir.join(format!("{number:08}"));
                if write {
                    let file = fs.create(&path).map_err(Error::io("create", &path))?;
                    file.sync().map_err(Error::io("sync", &path))?;
                    fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
                }
                self.created.push(path);
            }
            next = Some(segment.number + 1);
        }
        Ok(())
    }
}

/// Maximum number of consecutive missing segments. A larger gap is a segment with a wrong name.
const GAP_MAX: u64 = 10_000;

/// Reads a segment and writes its valid records to `target`. Returns their number.
fn rewrite(
    fs: &dyn Fs,
    segment: &Segment,
    target: Option<&Path>,
    damage: &mut DamageReport,
) -> Result<u64> {
    let mut reader = SegmentReader::open(fs, segment)?;
    let mut target = match target {
        Some(path) => Some((fs.create(path).map_err(Error::io("create", path))?, path)),
        None => None,
    };
    let mut pages = PageWriter::default();
    let mut n_records = 0;
    while let Some(record) = reader.next(damage) {
        if let Some(reason) = unreadable(&record) {
            damage.push(&segment.path, record.offset, DamageKind::Corrupt, reason);
            continue;
        }
        n_records += 1;
        if let Some((file, path)) = &mut target {
            pages.put(&record);
            file.append(&pages.bytes)
                .map_err(Error::io("write", path))?;
            pages.bytes.clear();
        }
    }
    if let Some((file, path)) = &target {
        file.sync().map_err(Error::io("sync", path))?;
    }
    Ok(n_records)
}

/// Returns the reason why Prometheus would stop at a record with a valid checksum, if any.
/// Prometheus skips unknown types.
fn unreadable(record: &RawRecord) -> Option<String> {
    let Some(bytes) = record.compression.decode(&record.bytes) else {
        return Some("cannot decompress record".to_owned());
    };
    RecordContent::decode(RecordType::of(&bytes)?, &bytes)
        .1
        .map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::WalCompression;
    use varve_env::RealFs;

    fn sample_record(series: u64) -> Vec<u8> {
        [
            &[2][..],
            &series.to_be_bytes(),
            &1000_u64.to_be_bytes(),
            &[0, 0],
            &1.0_f64.to_bits().to_be_bytes(),
        ]
        .concat()
    }

    /// Small records, one of them truncated if `is_damaged`, and one that spans three pages.
    fn segment(is_damaged: bool) -> Vec<u8> {
        let mut pages = PageWriter::default();
        for i in 0..2000 {
            let record = if i == 1000 && is_damaged {
                sample_record(1)[..17].to_vec()
            } else {
                sample_record(i)
            };
            let bytes = if i == 1500 {
                [&[99][..], &vec![7; 70_000]].concat()
            } else {
                record
            };
            pages.put(&RawRecord {
                offset: 0,
                compression: WalCompression::None,
                bytes,
            });
        }
        pages.bytes
    }

    #[test]
    fn valid_records_and_the_original_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let wal = dir.path().join("wal");
        std::fs::create_dir(&wal).unwrap();
        let mut bytes = segment(true);
        bytes[40_000] ^= 1;
        std::fs::write(wal.join("00000000"), &bytes).unwrap();
        std::fs::write(wal.join("00000003"), segment(false)).unwrap();
        let dry = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
        assert_eq!(
            (
                dry.repaired.len(),
                dry.repaired[0].n_records,
                dry.created.len()
            ),
            (1, 1998, 2)
        );
        assert_eq!(
            std::fs::read(wal.join("00000000")).unwrap(),
            bytes,
            "a dry run changes nothing"
        );
        let done = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
        assert_eq!(std::fs::read(&done.repaired[0].backup).unwrap(), bytes);
        let again = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
        assert_eq!(
            (
                again.repaired.len(),
                again.created.len(),
                again.damage.n_damaged()
            ),
            (0, 0, 0)
        );
        assert_eq!(
            std::fs::read(wal.join("00000003")).unwrap(),
            segment(false),
            "an undamaged segment is not rewritten"
        );
        assert_eq!(std::fs::read_dir(&wal).unwrap().count(), 4);
    }

    /// Prometheus opens segment 0 if there is no checkpoint.
    #[test]
    fn missing_segments_at_the_beginning_are_created() {
        for (log, n_created) in [("wal", 2), ("wbl", 0)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join(log)).unwrap();
            std::fs::write(dir.path().join(log).join("00000002"), segment(false)).unwrap();
            let done = repair(&RealFs, dir.path(), true, &mut |_, _| {}).unwrap();
            assert_eq!(done.created.len(), n_created, "{log}");
            let again = repair(&RealFs, dir.path(), false, &mut |_, _| {}).unwrap();
            assert_eq!(again.damage.n_damaged(), 0, "{log}");
        }
    }

    #[test]
    fn a_directory_in_use_is_not_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = RealFs.lock(&dir.path().join("lock")).unwrap();
        assert!(matches!(
            repair(&RealFs, dir.path(), true, &mut |_, _| {}),
            Err(Error::Locked { .. })
        ));
    }
}
