//! Blocks of Thanos or Mimir in a bucket, which are downloaded one at a time.

use std::sync::Arc;

use anyhow::{Context, Result};
use varve_prometheus::block::{BlockMeta, META_SIZE_MAX, Ulid};
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageReport;

use super::staging::Staging;
use super::{build_block, remove_dir};
use crate::objstore::{BucketConfig, Object, ObjectStore, ObjstoreMetrics, Pace};
use crate::tools::wal::{Progress, Unit};

/// Builds blocks of the store from the blocks of a bucket that have all `labels` as external labels. Skips blocks that
/// are downsampled, marked for deletion, or without a description.
///
/// # Errors
/// Errors of the bucket and of the data directory.
pub(super) fn build(
    fs: &Arc<dyn Fs>,
    bucket: &BucketConfig,
    labels: &[(String, String)],
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<()> {
    let mut store = ObjectStore::new(bucket, Pace::unlimited(), ObjstoreMetrics::unregistered())?;
    let dir = staging.bucket_dir();
    let mut names = store.list_dirs()?;
    names.retain(|name| Ulid::parse(name).is_some());
    names.sort_unstable();
    let (n_blocks, mut n_skipped) = (names.len() as u64, 0);
    let progress = Progress::start("importing blocks", Unit::Blocks);
    for (done, name) in (0..).zip(&names) {
        progress.show(done, n_blocks, "");
        let objects = store.list(&format!("{name}/"))?;
        let Some(meta) = read_meta(&mut store, name, &objects)?.filter(|meta| is_wanted(meta, labels)) else {
            n_skipped += 1;
            continue;
        };
        remove_dir(&dir)?;
        let block_dir = dir.join(name);
        let mut download = |key: &str, size: u64| store.get_file(key, size, &dir.join(key)).map(drop);
        download(&format!("{name}/meta.json"), meta.size)?;
        build_block(fs, &dir, &block_dir, staging, damage, &mut || {
            let mut data = objects.iter().filter(|object| is_data(&object.key[name.len() + 1..]));
            data.try_for_each(|object| download(&object.key, object.size))
        })?;
    }
    progress.finish();
    if n_skipped > 0 {
        println!("skipped {n_skipped} of {n_blocks} blocks: downsampled, deleted, incomplete or with other labels");
    }
    remove_dir(&dir)
}

/// A description, and the size of its object.
struct Described {
    meta: BlockMeta,
    size: u64,
}

/// Returns the description of a block. `None` if it has none, or is marked for deletion.
fn read_meta(store: &mut ObjectStore, name: &str, objects: &[Object]) -> Result<Option<Described>> {
    let (key, mark) = (format!("{name}/meta.json"), format!("{name}/deletion-mark.json"));
    let described = objects.iter().find(|object| object.key == key);
    let Some(&Object { size, .. }) = described.filter(|_| objects.iter().all(|object| object.key != mark)) else {
        return Ok(None);
    };
    let Some(json) = store.read(&key, META_SIZE_MAX)? else { return Ok(None) };
    let meta = BlockMeta::parse(&json).with_context(|| format!("object {key:?} is not a description of a block"))?;
    Ok(Some(Described { meta, size }))
}

/// Returns `true` for the index and chunk files of a block. Other keys might lead out of its directory.
fn is_data(path: &str) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    path == "index" || path.strip_prefix("chunks/").is_some_and(is_number)
}

fn is_wanted(block: &Described, labels: &[(String, String)]) -> bool {
    let thanos = block.meta.thanos.as_ref();
    // Mimir's blocks may have no labels.
    thanos.is_none_or(|thanos| thanos.resolution_ms == 0)
        && labels.iter().all(|label| thanos.is_some_and(|thanos| thanos.labels.contains(label)))
}
