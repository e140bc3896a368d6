use std::path::PathBuf;

use varve_env::{Clock, ReadOnlyFs, SystemClock};

use super::*;

#[test]
fn a_directory_is_replayed_without_being_changed() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        background: false,
        ..Options::default()
    };
    let db = Db::open(dir.path(), options.clone()).unwrap();
    let mut batch = WriteBatch::default();
    let series = db
        .series(&Labels::from_pairs([("__name__", "up")]).unwrap())
        .unwrap();
    batch.push(
        series,
        Sample {
            timestamp_ms: SystemClock.now_ms(),
            value: 1.0,
        },
        0,
    );
    db.append(&mut batch).unwrap();
    let files = || walk(dir.path());
    let before = files();
    // The directory is in use; its lock is not taken.
    let fs: Arc<dyn Fs> = Arc::new(ReadOnlyFs(Arc::new(RealFs)));
    let other = Db::open(
        dir.path(),
        Options {
            fs,
            wal_logs: 1,
            shards: 4,
            ..options
        },
    )
    .unwrap();
    assert_eq!(other.stats().replayed.n_samples, 1);
    drop(other);
    assert_eq!(files(), before);
}

fn walk(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path))
        } else {
            found.push((path.clone(), path.metadata().unwrap().len()))
        }
    }
    found.sort();
    found
}
