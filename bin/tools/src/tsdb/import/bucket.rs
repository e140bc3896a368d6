//! Blocks of Thanos or Mimir in a bucket, which are downloaded one at a time.

use std::sync::Arc;

use anyhow::{Context, Result};
use varve_env::Fs;
use varve_env::damage::DamageReport;
use varve_objstore::{BlockFiles, BucketConfig, DELETION_MARK, ObjectStore, ObjstoreMetrics, Pace};
use varve_prometheus::block::{BlockMeta, META_SIZE_MAX};
use varve_system::machine::files::remove_dir;

use super::super::args::ImportArgs;
use super::block::build_block;
use super::staging::Staging;
use crate::progress::{Progress, Unit};

/// The file with the description of a block.
const META: &str = "meta.json";

/// Builds blocks of the store from the blocks of a bucket that have the labels of `--block-label`.
/// Skips blocks that are downsampled, marked for deletion, or without a description.
///
/// # Errors
/// Errors of the bucket and of the data directory.
pub(super) fn build(
    fs: &Arc<dyn Fs>,
    bucket: &BucketConfig,
    args: &ImportArgs,
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<()> {
    let mut store = ObjectStore::new(bucket, Pace::unlimited(), ObjstoreMetrics::unregistered())?;
    let dir = staging.bucket_dir();
    let blocks = store.list_blocks()?;
    let n_blocks = blocks.len() as u64;
    let mut n_skipped = 0;
    let progress = Progress::start("importing blocks", Unit::Blocks);
    for (done, (ulid, files)) in (0..).zip(&blocks) {
        progress.show(done, n_blocks, "");
        let name = ulid.to_string();
        if read_meta(&mut store, &name, files)?
            .is_none_or(|meta| !is_wanted(&meta, &args.block_labels))
        {
            n_skipped += 1;
            continue;
        }
        remove_dir(&dir)?;
        let block_dir = dir.join(&name);
        let mut download = |path: &str, size: u64| {
            store
                .get_file(&format!("{name}/{path}"), size, &block_dir.join(path))
                .map(drop)
        };
        download(META, files[META])?;
        build_block(fs, &dir, &block_dir, staging, damage, &mut || {
            for (path, size) in files {
                if is_data(path) {
                    download(path, *size)?;
                }
            }
            Ok(())
        })?;
    }
    progress.finish();
    if n_skipped > 0 {
        println!(
            "skipped {n_skipped} of {n_blocks} blocks: downsampled, deleted, incomplete or with other labels"
        );
    }
    remove_dir(&dir)
}

/// Returns the description of a block. `None` if it has none, or is marked for deletion.
fn read_meta(store: &mut ObjectStore, name: &str, files: &BlockFiles) -> Result<Option<BlockMeta>> {
    if !files.contains_key(META) || files.contains_key(DELETION_MARK) {
        return Ok(None);
    }
    let key = format!("{name}/{META}");
    let Some(json) = store.read(&key, META_SIZE_MAX)? else {
        return Ok(None);
    };
    BlockMeta::parse(&json)
        .with_context(|| format!("object {key:?} is not a description of a block"))
        .map(Some)
}

/// Returns `true` for the index and chunk files of a block. Other keys might lead out of its
/// directory.
fn is_data(path: &str) -> bool {
    match path.strip_prefix("chunks/") {
        Some(name) => !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()),
        None => path == "index",
    }
}

fn is_wanted(block: &BlockMeta, labels: &[(String, String)]) -> bool {
    let thanos = block.thanos.as_ref();
    // Mimir's blocks may have no labels.
    thanos.is_none_or(|thanos| thanos.resolution_ms == 0)
        && labels
            .iter()
            .all(|label| thanos.is_some_and(|thanos| thanos.labels.contains(label)))
}
