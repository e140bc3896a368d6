//! `MemFs` against the real file system, and with protocols that are correct or omit a step.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::RealFs;

const SEEDS: u64 = 2000;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn write(fs: &dyn Fs, name: &str, bytes: &str, synced: bool) -> io::Result<()> {
    let file = fs.create(path(name))?;
    file.append(bytes.as_bytes())?;
    if synced { file.sync() } else { Ok(()) }
}

fn read(fs: &dyn Fs, name: &str) -> Option<String> {
    fs.read(path(name), 1 << 20)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Lists everything below a directory: `name=contents` of files, `name/` of directories.
fn tree(fs: &dyn Fs, dir: &Path) -> String {
    let mut text = String::new();
    for name in fs.list(dir).unwrap() {
        let path = dir.join(&name);
        match fs.read(&path, 1 << 20) {
            Ok(bytes) => write!(
                text,
                "{name}={} ",
                String::from_utf8_lossy(&bytes).replace('\0', "0")
            )
            .unwrap(),
            Err(_) => write!(text, "{name}/ {}", tree(fs, &path)).unwrap(),
        }
    }
    text
}

fn outcome(fs: &MemFs, cut: PowerCut) -> String {
    tree(&fs.crash(cut), path("/")).trim_end().to_owned()
}

/// The possible outcomes of a power cut that the seeds find; includes the extremes.
fn outcomes(fs: &MemFs) -> BTreeSet<String> {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| outcome(fs, PowerCut::Seeded(seed)))
        .collect();
    assert!(
        found.contains(&outcome(fs, PowerCut::KeepsAll)),
        "{found:?}"
    );
    assert!(
        found.contains(&outcome(fs, PowerCut::LosesAll)),
        "{found:?}"
    );
    found
}

/// Runs steps on a disk with a synced file `old` and asserts the possible outcomes of a power cut.
#[track_caller]
fn check(act: impl FnOnce(&MemFs) -> io::Result<()>, expected: &[&str]) {
    let fs = MemFs::new();
    write(&fs, "/old", "1", true).unwrap();
    fs.sync_dir(path("/")).unwrap();
    act(&fs).unwrap();
    let expected: BTreeSet<_> = expected.iter().map(|&outcome| outcome.to_owned()).collect();
    assert_eq!(outcomes(&fs), expected);
}

#[test]
fn any_prefix_of_appends_since_the_last_sync_may_survive() {
    check(
        |fs| {
            let file = fs.create(path("/log"))?;
            file.append(b"ab")?;
            file.sync()?;
            fs.sync_dir(path("/"))?;
            file.append(b"c")?;
            file.append(b"de")
        },
        &[
            "log=ab old=1",
            "log=abc old=1",
            "log=abcd old=1",
            "log=abcde old=1",
            // The piece may be zero.
            "log=ab0 old=1",
            "log=ab00 old=1",
            "log=ab000 old=1",
            "log=abc0 old=1",
            "log=abc00 old=1",
            "log=ab0d old=1",
            "log=ab0de old=1",
        ],
    );
}

#[test]
fn unsynced_pieces_in_the_middle_may_be_lost_and_synced_ones_never() {
    let fs = MemFs::new();
    let file = fs.create(path("/log")).unwrap();
    fs.sync_dir(path("/")).unwrap();
    file.append(&[b'a'; 700]).unwrap();
    file.sync().unwrap();
    file.append(&[b'b'; 9000]).unwrap();
    let (mut holes, mut sizes) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..300 {
        let left = fs
            .crash(PowerCut::Seeded(seed))
            .read(path("/log"), 1 << 20)
            .unwrap();
        assert!(left[..700].iter().all(|&byte| byte == b'a'), "seed {seed}");
        assert!(
            left[700..].iter().all(|&byte| byte == b'b' || byte == 0),
            "seed {seed}"
        );
        sizes.insert(left.len());
        holes.extend((1..left.len()).filter(|&at| left[at - 1] != 0 && left[at] == 0));
    }
    assert!(
        sizes.len() > 50 && sizes.contains(&700) && sizes.contains(&9700),
        "{sizes:?}"
    );
    assert!(
        holes.len() > 10 && holes.iter().all(|at| *at == 700 || at % 512 == 0),
        "{holes:?}"
    );
}

#[test]
fn an_unsynced_truncation_may_be_undone_and_later_writes_may_survive_in_part() {
    check(
        |fs| {
            let file = fs.create(path("/log"))?;
            file.append(b"abc")?;
            file.sync()?;
            fs.sync_dir(path("/"))?;
            file.truncate(1)?;
            file.append(b"xy")
        },
        &[
            "log=abc old=1",
            "log=a old=1",
            "log=ax old=1",
            "log=axy old=1",
            // The piece is zero, or as at the last sync.
            "log=a0 old=1",
            "log=a00 old=1",
            "log=ab old=1",
        ],
    );
    let fs = MemFs::new();
    write(&fs, "/log", "abc", true).unwrap();
    fs.sync_dir(path("/")).unwrap();
    fs.truncate(path("/log"), 1).unwrap();
    assert_eq!(
        outcomes(&fs),
        BTreeSet::from(["log=a".to_owned()]),
        "a truncation through the directory is synced"
    );
}

#[test]
fn entries_survive_or_are_lost_independently() {
    let create_two =
        |fs: &MemFs| write(fs, "/a", "2", true).and_then(|()| write(fs, "/b", "3", true));
    check(
        create_two,
        &["old=1", "a=2 old=1", "b=3 old=1", "a=2 b=3 old=1"],
    );
    check(
        |fs| create_two(fs).and_then(|()| fs.sync_dir(path("/"))),
        &["a=2 b=3 old=1"],
    );
    check(|fs| fs.remove(path("/old")), &["old=1", ""]);
    check(
        |fs| {
            fs.remove(path("/old"))
                .and_then(|()| fs.sync_dir(path("/")))
        },
        &[""],
    );
    check(
        |fs| {
            fs.hard_link(path("/old"), path("/new"))
                .and_then(|()| fs.remove(path("/old")))
        },
        &["old=1", "new=1 old=1", "new=1", ""],
    );
}

#[test]
fn a_rename_is_atomic() {
    let rename = |fs: &MemFs| fs.rename(path("/old"), path("/new"));
    check(rename, &["old=1", "new=1"]);
    check(
        |fs| rename(fs).and_then(|()| fs.sync_dir(path("/"))),
        &["new=1"],
    );
    let replace = |fs: &MemFs| {
        write(fs, "/spare", "2", true)?;
        fs.sync_dir(path("/"))?;
        fs.rename(path("/spare"), path("/old"))
    };
    check(replace, &["old=1 spare=2", "old=2"]);
    check(
        |fs| replace(fs).and_then(|()| write(fs, "/spare", "3", true)),
        &["old=1 spare=2", "old=2", "old=2 spare=3"],
    );
    check(
        |fs| rename(fs).and_then(|()| fs.rename(path("/new"), path("/old"))),
        &["old=1", "new=1"],
    );
}

#[test]
fn a_rename_of_an_unsynced_file_may_leave_it_empty() {
    check(
        |fs| {
            write(fs, "/spare", "2", false)?;
            fs.rename(path("/spare"), path("/old"))?;
            fs.sync_dir(path("/"))
        },
        &["old=", "old=2", "old=0"],
    );
}

#[test]
fn a_rename_across_directories_is_durable_with_the_sync_of_either() {
    for synced in ["/", "/dir"] {
        check(
            |fs| {
                fs.create_dir(path("/dir"))?;
                fs.sync_dir(path("/"))?;
                fs.rename(path("/old"), path("/dir/new"))?;
                fs.sync_dir(path(synced))
            },
            &["dir/ new=1"],
        );
    }
}

#[test]
fn without_the_entry_of_a_directory_everything_below_is_lost() {
    let fill = |fs: &MemFs| {
        fs.create_dir(path("/dir/sub"))?;
        write(fs, "/dir/sub/a", "2", true)?;
        fs.sync_dir(path("/dir/sub"))
    };
    check(fill, &["old=1", "dir/ old=1", "dir/ sub/ a=2 old=1"]);
    check(
        |fs| fill(fs).and_then(|()| fs.sync_dir(path("/dir"))),
        &["old=1", "dir/ sub/ a=2 old=1"],
    );
    check(
        |fs| fill(fs).and_then(|()| fs.sync_dir(path("/"))),
        &["dir/ old=1", "dir/ sub/ a=2 old=1"],
    );
    check(
        |fs| {
            fill(fs)?;
            ["/", "/dir"]
                .iter()
                .try_for_each(|dir| fs.sync_dir(path(dir)))?;
            fs.remove(path("/dir/sub/a"))?;
            fs.remove_dir(path("/dir/sub"))
        },
        &["dir/ old=1", "dir/ sub/ old=1", "dir/ sub/ a=2 old=1"],
    );
}

#[test]
fn bytes_of_a_failed_sync_may_be_lost_whatever_later_syncs_return() {
    check(
        |fs| {
            let file = fs.create(path("/log"))?;
            fs.sync_dir(path("/"))?;
            file.append(b"a")?;
            file.sync()?;
            file.append(b"b")?;
            fs.set_sync_fails(true);
            file.sync().unwrap_err();
            fs.sync_dir(path("/")).unwrap_err();
            fs.set_sync_fails(false);
            file.append(b"c")?;
            file.sync()?;
            file.sync()
        },
        &["log=abc old=1", "log=a0c old=1"],
    );
}

/// Replaces `/old`, omitting one step.
fn replace(fs: &dyn Fs, skipped_step: usize) -> io::Result<()> {
    let step = |number: usize, act: &dyn Fn() -> io::Result<()>| {
        if number == skipped_step {
            Ok(())
        } else {
            act()
        }
    };
    step(0, &|| match fs.remove(path("/spare")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    })?;
    let file = fs.create(path("/spare"))?;
    file.append(b"new ")?;
    file.append(b"contents")?;
    step(1, &|| file.sync())?;
    fs.rename(path("/spare"), path("/old"))?;
    step(2, &|| fs.sync_dir(path("/")))
}

/// Runs the replacement with each failing operation and each kind of fault, cuts the power, and
/// counts wrong outcomes.
fn failures_of_replace(skipped_step: usize) -> usize {
    let mut n_wrong = 0;
    for fault in [
        Fault::Fails(io::ErrorKind::StorageFull),
        Fault::Cut,
        Fault::Dies,
    ] {
        for at in 0.. {
            let fs = MemFs::new();
            write(&fs, "/old", "old contents", true).unwrap();
            write(&fs, "/spare", "left by an earlier crash", true).unwrap();
            fs.sync_dir(path("/")).unwrap();
            fs.fail_at(fs.n_operations() + at, fault);
            let done = replace(&fs, skipped_step);
            for seed in 0..50 {
                let after = fs.crash(PowerCut::Seeded(seed));
                let found = read(&after, "/old");
                let is = |contents: &str| found.as_deref() == Some(contents);
                let right = is("new contents") || done.is_err() && is("old contents");
                n_wrong += usize::from(!right || replace(&after, skipped_step).is_err());
            }
            if fs.failed().is_none() {
                break;
            }
        }
    }
    n_wrong
}

#[test]
fn a_correct_replacement_passes_at_every_operation_and_each_omitted_step_is_detected() {
    assert_eq!(failures_of_replace(usize::MAX), 0);
    for step in 0..3 {
        assert!(failures_of_replace(step) > 0, "step {step}");
    }
}

#[test]
fn a_chosen_operation_fails_and_is_reported() {
    let fs = MemFs::new();
    fs.fail_at(1, Fault::Fails(io::ErrorKind::StorageFull));
    fs.fail_at(3, Fault::Cut);
    fs.fail_at(4, Fault::Cut);
    fs.fail_at(6, Fault::Dies);
    let file = fs.create(path("/a")).unwrap();
    assert_eq!(
        file.append(b"12").unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    file.append(b"34").unwrap();
    assert!(file.append(b"5678").is_err());
    assert_eq!(read(&fs, "/a").unwrap(), "3456", "half of a cut append");
    assert!(fs.rename(path("/a"), path("/b")).is_err());
    assert_eq!(read(&fs, "/b").unwrap(), "3456", "a cut rename is done");
    assert_eq!(fs.failed().unwrap(), "operation 4, rename /a: Cut");
    file.sync().unwrap();
    assert!(file.append(b"7890").is_err());
    assert_eq!(fs.n_operations(), 7);
    assert!(
        file.append(b"x").is_err()
            && file.sync().is_err()
            && fs.list(path("/")).is_err()
            && fs.open(path("/b")).is_err()
    );
    assert_eq!(fs.n_operations(), 7, "a dead process does nothing");
    let after = fs.crash(PowerCut::KeepsAll);
    assert_eq!(read(&after, "/b").unwrap(), "345678");
    drop((file, fs));
    after.remove(path("/b")).unwrap();
}

#[test]
fn a_full_disk_writes_what_fits_and_removals_free_space() {
    let fs = MemFs::new();
    write(&fs, "/reserve", "1234", true).unwrap();
    fs.set_room(3);
    let file = fs.create(path("/a")).unwrap();
    assert_eq!(
        file.append(b"abcd").unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert_eq!(read(&fs, "/a").unwrap(), "abc");
    file.truncate(2).unwrap();
    file.append(b"x").unwrap();
    assert!(file.append(b"y").is_err());
    fs.remove(path("/reserve")).unwrap();
    file.append(b"1234").unwrap();
    assert!(file.append(b"5").is_err());
    fs.remove(path("/a")).unwrap();
    assert!(
        write(&fs, "/b", "1", false).is_err(),
        "a file that is open keeps its room"
    );
    fs.remove(path("/b")).unwrap();
    drop(file);
    write(&fs, "/b", "1234567", false).unwrap();
    assert!(write(&fs, "/c", "1", false).is_err());
}

#[test]
fn bad_sectors_and_files_truncated_while_open_fail_only_affected_reads() {
    let fs = MemFs::new();
    write(&fs, "/a", "0123456789", true).unwrap();
    fs.sync_dir(path("/")).unwrap();
    fs.set_bad_sector(path("/a"), 4..6).unwrap();
    let file = fs.open(path("/a")).unwrap();
    let mut buf = [0; 4];
    for (offset, expected) in [
        (0, None),
        (1, Some(None)),
        (5, Some(None)),
        (6, None),
        (7, Some(Some(io::ErrorKind::UnexpectedEof))),
    ] {
        let error = file.read_at(&mut buf, offset).err();
        assert_eq!(
            error.is_some(),
            expected.is_some(),
            "offset {offset}: {error:?}"
        );
        if let (Some(error), Some(Some(kind))) = (error, expected) {
            assert_eq!(error.kind(), kind, "offset {offset}");
        }
    }
    assert!(
        fs.crash(PowerCut::KeepsAll).read(path("/a"), 100).is_err(),
        "bad sectors stay"
    );
    fs.edit(path("/a"), |bytes| bytes.truncate(3)).unwrap();
    assert_eq!(file.size().unwrap(), 3);
    assert_eq!(
        file.read_at(&mut buf, 0).unwrap_err().kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(outcome(&fs, PowerCut::LosesAll), "a=012");
}

#[test]
fn a_lock_is_exclusive_until_it_is_dropped_or_the_power_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mem = MemFs::new();
    let disks: [(&dyn Fs, PathBuf); 2] = [
        (&RealFs, dir.path().join("lock")),
        (&mem, PathBuf::from("/lock")),
    ];
    for (fs, path) in disks {
        let held = fs.lock(&path).unwrap();
        assert_eq!(
            fs.lock(&path).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(held);
        drop(fs.lock(&path).unwrap());
    }
    let _held = mem.lock(path("/lock")).unwrap();
    mem.crash(PowerCut::KeepsAll).lock(path("/lock")).unwrap();
}

#[test]
fn unreachable_files_are_removed() {
    let fs = MemFs::new();
    for _ in 0..100 {
        write(&fs, "/a", "1", true).unwrap();
        fs.remove(path("/a")).unwrap();
        fs.sync_dir(path("/")).unwrap();
    }
    assert!(fs.disk.lock().nodes.len() <= 2);
    assert!(fs.disk.lock().changes.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Append(usize, Vec<u8>),
    Truncate(usize, u64),
    CreateDir(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Remove(usize),
    RemoveDir(usize),
    Sync(usize),
    SyncDir(usize),
}

const PATHS: [&str; 7] = ["a", "b", "d", "d/a", "d/e", "d/e/a", "b/c"];

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..PATHS.len();
    prop_oneof![
        4 => at().prop_map(Step::Create),
        4 => (at(), proptest::collection::vec(b'a'..=b'z', 0..20)).prop_map(|(at, bytes)| Step::Append(at, bytes)),
        1 => (at(), 0..20_u64).prop_map(|(at, size)| Step::Truncate(at, size)),
        2 => at().prop_map(Step::CreateDir),
        3 => (at(), at()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (at(), at()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => at().prop_map(Step::Remove),
        1 => at().prop_map(Step::RemoveDir),
        2 => at().prop_map(Step::Sync),
        2 => at().prop_map(Step::SyncDir),
    ]
}

/// A disk, the directory of a test, and its open files.
struct Bench {
    fs: Arc<dyn Fs>,
    root: PathBuf,
    open: Vec<Option<Arc<dyn AppendFile>>>,
}

impl Bench {
    fn new(fs: Arc<dyn Fs>, root: PathBuf) -> Self {
        Self {
            fs,
            root,
            open: vec![None; PATHS.len()],
        }
    }

    /// Runs a step and returns its error. A file is appended to through the handle that created it.
    fn run(&mut self, step: &Step) -> Result<(), io::ErrorKind> {
        let path = |at: usize| self.root.join(PATHS[at]);
        let file = |at: usize| self.open[at].as_ref().ok_or(io::ErrorKind::NotFound);
        match step {
            Step::Create(at) => {
                let created = self.fs.create(&path(*at)).map_err(|e| e.kind())?;
                self.open[*at] = Some(created);
                return Ok(());
            }
            Step::Append(at, bytes) => file(*at)?.append(bytes),
            Step::Sync(at) => file(*at)?.sync(),
            Step::Truncate(at, size) => self.fs.truncate(&path(*at), *size),
            Step::CreateDir(at) => self.fs.create_dir(&path(*at)),
            Step::Rename(from, to) => self.fs.rename(&path(*from), &path(*to)),
            Step::Link(from, to) => self.fs.hard_link(&path(*from), &path(*to)),
            Step::Remove(at) => self.fs.remove(&path(*at)),
            Step::RemoveDir(at) => self.fs.remove_dir(&path(*at)),
            // A real file can be synced the way directories are.
            Step::SyncDir(at) if self.fs.list(&path(*at)).is_ok() => self.fs.sync_dir(&path(*at)),
            Step::SyncDir(_) => Ok(()),
        }
        .map_err(|e| e.kind())
    }

    /// Syncs all files and directories.
    fn sync_all(&self, dir: &Path) {
        for name in self.fs.list(dir).unwrap() {
            let path = dir.join(name);
            match self.fs.open(&path).and_then(|file| file.size()) {
                // Truncating a file at its end syncs it.
                Ok(size) if self.fs.list(&path).is_err() => self.fs.truncate(&path, size).unwrap(),
                _ => self.sync_all(&path),
            }
        }
        self.fs.sync_dir(dir).unwrap();
    }
}

proptest! {
    #[test]
    fn without_faults_it_behaves_like_the_real_file_system(steps in proptest::collection::vec(step(), 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut real = Bench::new(Arc::new(RealFs), dir.path().to_owned());
        let mut mem = Bench::new(Arc::new(MemFs::new()), PathBuf::from("/"));
        for step in &steps {
            prop_assert_eq!(mem.run(step), real.run(step), "{:?}", step);
        }
        prop_assert_eq!(tree(&*mem.fs, &mem.root), tree(&*real.fs, &real.root));
    }

    #[test]
    fn synced_data_survives_and_survivors_existed_before(
        steps in proptest::collection::vec(step(), 0..60), seeds in proptest::collection::vec(any::<u64>(), 10),
    ) {
        let fs = MemFs::new();
        let mut bench = Bench::new(Arc::new(fs.clone()), PathBuf::from("/"));
        for step in &steps {
            let _may_fail = bench.run(step);
        }
        prop_assert_eq!(tree(&fs.crash(PowerCut::KeepsAll), &bench.root), tree(&fs, &bench.root));
        let cuts: Vec<_> = seeds.into_iter().map(PowerCut::Seeded).chain([PowerCut::LosesAll, PowerCut::KeepsAll]).collect();
        for &cut in &cuts {
            let after = fs.crash(cut);
            let left = tree(&after, &bench.root);
            prop_assert_eq!(&tree(&after.crash(PowerCut::LosesAll), &bench.root), &left, "the outcome of a power cut is durable");
        }
        bench.sync_all(&bench.root);
        let now = tree(&fs, &bench.root);
        for cut in cuts {
            prop_assert_eq!(&tree(&fs.crash(cut), &bench.root), &now, "{:?}", cut);
        }
    }
}
