//! Replay of whole logs: at every step of a cut, with damaged segments and checkpoints.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::fs::{AppendFile, ReadFile, RealFs};
use crate::head::SeriesRef;
use crate::labels::Labels;
use crate::options::WalSync;
use crate::sample::Sample;
use crate::wal::{Cut, SampleColumn, SegmentKind, Wal, WalOptions, remove_epochs_before};

const EPOCH: Epoch = Epoch { number: 0, logs: 1 };

/// What a replay of a folder of logs leads to.
struct Replayed {
    result: Result<(ReplayStats, u64)>,
    progress: ReplayProgress,
    metadata: BTreeMap<String, Metadata>,
}

fn replay(wal_dir: &Path, on_corruption: WalOnCorruption) -> Replayed {
    let scratch = tempfile::tempdir().unwrap();
    let shards: Vec<Shard> = (0..2_u16)
        .map(|idx| {
            let wal = wal_of(&scratch.path().join(idx.to_string()), Arc::new(RealFs));
            Shard::new(idx, 1, crate::logs::Log::new(wal), usize::MAX)
        })
        .collect();
    let mut epochs: Vec<Epoch> = RealFs.list(wal_dir).unwrap().iter().filter_map(|name| Epoch::parse(name)).collect();
    epochs.sort_unstable();
    let (metadata, progress) = (Mutex::default(), ReplayProgress::default());
    let exemplars = Exemplars::new(0);
    let quarantine = wal_dir.join("quarantine");
    let target = Target {
        shards: &shards,
        metadata: &metadata,
        exemplars: &exemplars,
        quarantine: &quarantine,
        fs: &RealFs,
        on_corruption,
        gathered_bytes: 1 << 20,
        progress: &progress,
        newest_ms: &AtomicI64::new(i64::MIN),
        stop: &AtomicBool::new(false),
    };
    let result = Replay::definitions(wal_dir, &epochs, &target).and_then(Replay::samples);
    Replayed { result, progress, metadata: metadata.into_inner().unwrap() }
}

fn stats(wal_dir: &Path) -> (ReplayStats, u64) {
    replay(wal_dir, WalOnCorruption::Quarantine).result.unwrap()
}

fn wal_of(dir: &Path, fs: Arc<dyn Fs>) -> Wal {
    Wal::open(WalOptions { number: 0, dir: dir.to_owned(), fs, sync: WalSync::Never, segment_size_bytes: 1 << 20 })
        .unwrap()
}

fn labels(i: u64) -> Labels {
    Labels::from_pairs([("__name__", "m"), ("i", &*i.to_string())]).unwrap()
}

/// Defines series and appends a sample to each as one request.
fn append(wal: &Wal, new: impl IntoIterator<Item = u64>, all: impl IntoIterator<Item = u64>, timestamp_ms: i64) {
    new.into_iter().for_each(|i| wal.append_series(SeriesRef(i), &labels(i)));
    let mut column = SampleColumn::default();
    all.into_iter().for_each(|i| column.push(SeriesRef(i), Sample { timestamp_ms, value: i as f64 }));
    wal.append_samples(&column);
    wal.commit(wal.end()).unwrap();
}

fn checkpoint(wal: &Wal, cut: Cut, live: impl IntoIterator<Item = u64>, next_ref: u64) {
    let mut live: Vec<_> = live.into_iter().map(|i| (SeriesRef(i), labels(i), 1000)).collect();
    live.sort_by(|a, b| a.1.cmp(&b.1));
    let metadata = Metadata { help: "h".into(), ..Metadata::default() };
    wal.checkpoint(cut, live.into_iter().map(Ok), next_ref, [("m", &metadata)].into_iter(), &[]).unwrap();
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to)
        } else {
            std::fs::copy(entry.path(), to).map(drop).unwrap()
        }
    }
}

/// Every file below a folder with its bytes.
fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
    files
}

/// The real disk, of which a copy is kept before and after every change, and of every write a half one.
#[derive(Debug)]
struct RecordingFs {
    root: PathBuf,
    copies: PathBuf,
    n_copies: AtomicUsize,
}

#[derive(Debug)]
struct RecordingFile {
    file: Arc<dyn AppendFile>,
    fs: Arc<RecordingFs>,
}

#[derive(Debug, Clone)]
struct Recorder(Arc<RecordingFs>);

impl RecordingFs {
    fn keep(&self) {
        let n = self.n_copies.fetch_add(1, Ordering::SeqCst);
        copy_dir(&self.root, &self.copies.join(n.to_string()));
    }
}

impl AppendFile for RecordingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let (a, b) = bytes.split_at(bytes.len() / 2);
        self.file.append(a)?;
        self.fs.keep();
        self.file.append(b)?;
        self.fs.keep();
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Fs for Recorder {
    fn lock(&self, path: &Path) -> io::Result<Box<dyn crate::fs::Lock>> {
        RealFs.lock(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }
    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        RealFs.read(path, size_max)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = RealFs.create(path)?;
        self.0.keep();
        Ok(Arc::new(RecordingFile { file, fs: Arc::clone(&self.0) }))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        RealFs.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)?;
        self.0.keep();
        Ok(())
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.hard_link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)?;
        self.0.keep();
        Ok(())
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.remove_dir(path)
    }
    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        RealFs.truncate(path, size)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.sync_dir(path)
    }
}

/// Two rounds of append, cut, append, checkpoint: wherever the process ends, what was acknowledged and is in no block is
/// there, and every series that it needs.
#[test]
fn a_crash_at_any_step_of_a_cut_leaves_the_old_state_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (root, copies) = (dir.path().join("wal"), dir.path().join("copies"));
    let fs = Arc::new(RecordingFs { root: root.clone(), copies: copies.clone(), n_copies: AtomicUsize::new(0) });
    let wal = wal_of(&EPOCH.log_dir(&root, 0), Arc::new(Recorder(Arc::clone(&fs))));
    // From which copy on so many samples are acknowledged, and how many of them may be gone.
    let mut steps = Vec::new();
    let (mut acknowledged, mut replaced) = (0, 0);
    for round in 0..2_u64 {
        append(&wal, round * 10..round * 10 + 5, 0..round * 10 + 5, round as i64 * 10);
        acknowledged += round * 10 + 5;
        steps.push((fs.n_copies.load(Ordering::SeqCst), acknowledged, replaced));
        let cut = wal.rotate().unwrap();
        let before_cut = acknowledged;
        append(&wal, round * 10 + 5..round * 10 + 10, 0..round * 10 + 10, round as i64 * 10 + 5);
        acknowledged += round * 10 + 10;
        // From here on the samples before the cut are elsewhere.
        replaced = before_cut;
        steps.push((fs.n_copies.load(Ordering::SeqCst), acknowledged, replaced));
        checkpoint(&wal, cut, 0..round * 10 + 10, 1000 + round);
    }
    let n_copies = fs.n_copies.load(Ordering::SeqCst);
    assert!(n_copies > 30);
    let mut seen = std::collections::BTreeSet::new();
    for copy in 0..n_copies {
        let (found, next_ref) = stats(&copies.join(copy.to_string()));
        let passed = steps.iter().rev().find(|step| copy >= step.0);
        let (_, acknowledged, replaced) = passed.copied().unwrap_or((0, 0, 0));
        assert_eq!((found.n_orphaned, found.damaged_bytes, found.n_missing_frames), (0, 0, 0), "copy {copy}");
        assert!(found.n_samples + replaced >= acknowledged, "copy {copy}: {found:?}, {steps:?}");
        assert!(next_ref >= found.n_series, "copy {copy}");
        seen.insert(found.n_samples);
    }
    let (found, next_ref) = stats(&root);
    assert_eq!((found.n_series, found.n_samples, next_ref), (20, 20, 1001), "what comes behind the last cut");
    assert!(seen.len() > 5, "{seen:?}");
    assert_eq!(RealFs.list(&EPOCH.log_dir(&root, 0)).unwrap().len(), 3, "a checkpoint and two segments");
}

/// A log with a checkpoint of 1,000 series and 10 more behind it. The one before it and its segment can be put back.
fn log_with_two_checkpoints(root: &Path, keep_older: bool) {
    let dir = EPOCH.log_dir(root, 0);
    let wal = wal_of(&dir, Arc::new(RealFs));
    let backup = root.with_extension("backup");
    append(&wal, 0..500, 0..500, 0);
    let cut = wal.rotate().unwrap();
    checkpoint(&wal, cut, 0..500, 5000);
    append(&wal, 500..1000, 0..1000, 10);
    let cut = wal.rotate().unwrap();
    copy_dir(&dir, &backup);
    append(&wal, 1000..1010, 0..1010, 20);
    checkpoint(&wal, cut, 0..1010, 6000);
    if keep_older {
        copy_dir(&backup, &dir);
    }
}

fn newest_checkpoint(root: &Path) -> PathBuf {
    let dir = EPOCH.log_dir(root, 0);
    let names = RealFs.list(&dir).unwrap();
    dir.join(names.iter().rfind(|name| SegmentKind::Checkpoint.parse(name).is_some()).unwrap())
}

#[test]
fn a_sound_checkpoint_restores_series_metadata_and_the_next_number() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("wal");
    for keep_older in [false, true] {
        log_with_two_checkpoints(&root, keep_older);
        let Replayed { result, progress, metadata } = replay(&root, WalOnCorruption::Refuse);
        let (found, next_ref) = result.unwrap();
        assert_eq!((found.n_series, found.n_samples, next_ref), (1010, 1010, 6000), "{found:?}");
        assert_eq!(metadata["m"].help, "h");
        assert_eq!((progress.n_files(), progress.n_files_total()), (3, 3));
        assert_eq!((progress.n_bytes(), progress.n_samples()), (progress.n_bytes_total(), 1010));
        assert_eq!(found.read_bytes, progress.n_bytes());
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before_it_or_to_what_is_left_of_it() {
    for keep_older in [false, true] {
        for at in [10, 30, 200, usize::MAX] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("wal");
            log_with_two_checkpoints(&root, keep_older);
            let path = newest_checkpoint(&root);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();

            let before = files_of(&root);
            match replay(&root, WalOnCorruption::Refuse).result.unwrap_err() {
                Error::Corrupt { path: named, offset, .. } => assert!(named == path && offset <= at as u64),
                e => panic!("{e}"),
            }
            assert_eq!(files_of(&root), before, "nothing is changed");

            let (found, next_ref) = stats(&root);
            assert_eq!(found.n_damaged_checkpoints, 1);
            assert!(found.damaged_bytes > 0 && root.join("quarantine").exists());
            assert_eq!(files_of(&EPOCH.dir(&root)), before.into_iter().filter(|(p, _)| p != &root).collect());
            if keep_older {
                assert_eq!((found.n_series, found.n_samples, found.n_orphaned), (1010, 2010, 0), "at {at}");
            } else {
                assert_eq!(found.n_samples + found.n_orphaned, 1010, "at {at}: {found:?}");
                assert!(next_ref >= if at == 10 { 1010 } else { 6000 }, "at {at}: {next_ref}");
            }
        }
    }
}

#[test]
fn damage_to_segments_is_refused_before_anything_is_changed_or_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("wal");
    let wal = wal_of(&EPOCH.log_dir(&root, 0), Arc::new(RealFs));
    append(&wal, 0..3, 0..3, 0);
    (1..10).for_each(|t| append(&wal, [], 0..3, t));
    wal.rotate().unwrap();
    (10..12).for_each(|t| append(&wal, [], 0..3, t));
    let shard = EPOCH.log_dir(&root, 0);
    // One segment has damage inside, the other a torn end.
    let names = RealFs.list(&shard).unwrap();
    let [damaged, torn] = [&names[0], &names[1]].map(|name| shard.join(name));
    let mut bytes = std::fs::read(&damaged).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let whole = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &whole[..whole.len() - 1]).unwrap();

    let before = files_of(&root);
    let refused = replay(&root, WalOnCorruption::Refuse).result.unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { path, offset, .. } if *path == damaged && *offset <= at as u64));
    assert_eq!(files_of(&root), before);

    for round in 0..2 {
        let (found, _) = stats(&root);
        assert_eq!((found.n_samples, found.n_missing_frames), (30, 1), "two frames of three samples are lost");
        assert_eq!(found.torn_bytes > 0, round == 0, "a torn end is cut once");
        assert_eq!(RealFs.list(&root.join("quarantine")).unwrap().len(), 1, "damage is kept once");
    }
}

/// The log goes with the next flush, and with it what could not be told whose it is.
#[test]
fn segments_with_samples_of_lost_definitions_are_kept_whole() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("wal");
    let wal = wal_of(&EPOCH.log_dir(&root, 0), Arc::new(RealFs));
    append(&wal, [0], 0..=0, 0);
    append(&wal, [1], 0..=1, 1);
    drop(wal);
    let files = files_of(&root);
    let of = |kind: SegmentKind| {
        let is_one = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(kind.prefix());
        files.clone().into_iter().find(|(path, _)| is_one(path)).expect("there is one of each")
    };
    let ((series, mut bytes), (_, samples)) = (of(SegmentKind::Series), of(SegmentKind::Samples));
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    std::fs::write(&series, &bytes).unwrap();
    for _ in 0..2 {
        assert_eq!(stats(&root).0.n_orphaned, 1);
        let kept: Vec<_> =
            files_of(&root.join("quarantine")).into_iter().filter(|(_, bytes)| *bytes == samples).collect();
        assert_eq!(kept.len(), 1, "once");
    }
}

/// What does not touch a frame does not cost it, and nothing is made up.
#[test]
fn every_damaged_byte_and_every_cut_of_a_small_log_opens() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("wal");
    let wal = wal_of(&EPOCH.log_dir(&root, 0), Arc::new(RealFs));
    (0..4).for_each(|i| append(&wal, [i], 0..=i, i as i64));
    let shard = EPOCH.log_dir(&root, 0);
    for name in RealFs.list(&shard).unwrap() {
        let path = shard.join(name);
        let good = std::fs::read(&path).unwrap();
        // Frames are tested with every bit; here one bit of each byte does.
        let flipped = (0..good.len()).map(|at| {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            (bad, at >= 24)
        });
        let cuts = (0..good.len()).map(|size| (good[..size].to_vec(), false));
        for (bad, costs_one_frame) in flipped.chain(cuts) {
            std::fs::write(&path, &bad).unwrap();
            let (found, _) = stats(&root);
            let n_found = found.n_samples + found.n_orphaned;
            assert!(n_found <= 10 && (n_found >= 6 || !costs_one_frame), "{found:?}");
            std::fs::write(&path, &good).unwrap();
            let _kept = std::fs::remove_dir_all(root.join("quarantine"));
        }
    }
    assert_eq!(stats(&root).0.n_samples, 10);
}

#[test]
fn unknown_records_in_sound_frames_refuse_to_open() {
    use crate::wal::frame::{begin_frame, file_header, finish_frame};
    for (kind, record) in
        [(SegmentKind::Samples, 4), (SegmentKind::Samples, 1), (SegmentKind::Series, 2), (SegmentKind::Series, 0x83)]
    {
        let dir = tempfile::tempdir().unwrap();
        let shard = EPOCH.log_dir(dir.path(), 0);
        std::fs::create_dir_all(&shard).unwrap();
        let mut bytes = file_header(kind, 9).to_vec();
        let at = begin_frame(&mut bytes);
        bytes.extend_from_slice(b"from the future");
        finish_frame(&mut bytes, at, 9, 0, record);
        std::fs::write(shard.join(kind.file_name(0)), bytes).unwrap();
        let refused = replay(dir.path(), WalOnCorruption::Quarantine).result.unwrap_err();
        assert!(matches!(refused, Error::Corrupt { offset: 24, .. }), "{refused}");
    }
}

#[test]
fn a_log_of_an_earlier_number_of_shards_is_read_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let old = wal_of(&EPOCH.log_dir(dir.path(), 0), Arc::new(RealFs));
    append(&old, 0..10, 0..10, 0);
    let current = Epoch { number: 1, logs: 2 };
    let new: Vec<_> = (0..2).map(|shard| wal_of(&current.log_dir(dir.path(), shard), Arc::new(RealFs))).collect();
    append(&new[0], [], 0..5, 1);
    append(&new[1], [20], [20, 5, 6], 1);
    let (found, next_ref) = stats(dir.path());
    assert_eq!((found.n_series, found.n_samples, found.n_orphaned, next_ref), (11, 18, 0, 21));
    for (wal, live) in new.iter().zip([0..5, 5..11]) {
        let cut = wal.rotate().unwrap();
        checkpoint(wal, cut, live, 21);
    }
    remove_epochs_before(&RealFs, dir.path(), current).unwrap();
    append(&new[0], [], 0..3, 2);
    let (found, next_ref) = stats(dir.path());
    assert_eq!((found.n_series, found.n_samples, found.n_orphaned, next_ref), (11, 3, 0, 21));
}
