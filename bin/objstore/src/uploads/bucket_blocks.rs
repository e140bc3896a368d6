//! The complete blocks of a bucket, and the blocks that they were compacted from.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use varve_prometheus::block::{BlockMeta, META_SIZE_MAX, Ulid};

use crate::{BlockFiles, DELETION_MARK, ObjectStore};

/// Blocks without a mark for deletion whose files are all there, with the sizes in `meta.json`.
#[derive(Debug, Default)]
pub(super) struct BucketBlocks {
    /// Descriptions of blocks, which never change.
    metas: HashMap<Ulid, BlockMeta>,
    /// Sources of complete blocks: the blocks themselves, or those that they were compacted from.
    sources: HashSet<Ulid>,
}

impl BucketBlocks {
    /// Returns `true` if a block, or a block compacted from it, is in the bucket.
    pub(super) fn has(&self, ulid: Ulid) -> bool {
        self.sources.contains(&ulid)
    }

    /// Adds a block that has just been uploaded.
    pub(super) fn add(&mut self, block: &BlockMeta) {
        self.sources.extend(&block.sources);
        self.metas.insert(block.ulid, block.clone());
    }

    /// Lists the bucket and reads new descriptions.
    ///
    /// # Errors
    /// Errors of [`ObjectStore::list_blocks`] and of the bucket.
    pub(super) fn refresh(&mut self, store: &mut ObjectStore) -> Result<()> {
        let listed = store.list_blocks()?;
        let mut known = std::mem::take(&mut self.metas);
        self.sources.clear();
        for (ulid, files) in listed {
            if !files.contains_key("meta.json") || files.contains_key(DELETION_MARK) {
                continue;
            }
            let meta = match known.remove(&ulid) {
                Some(meta) => meta,
                None => {
                    let key = format!("{ulid}/meta.json");
                    // Removed meanwhile.
                    let Some(json) = store.read(&key, META_SIZE_MAX)? else {
                        continue;
                    };
                    BlockMeta::parse(&json)
                        .with_context(|| format!("object {key:?} is not a description"))?
                }
            };
            if is_complete(&meta, &files) {
                self.add(&meta)
            } else {
                tracing::warn!(block = %ulid, "A block of the bucket is not complete")
            }
        }
        Ok(())
    }
}

fn is_complete(meta: &BlockMeta, files: &BlockFiles) -> bool {
    let listed = meta.thanos.iter().flat_map(|thanos| &thanos.files);
    let mut listed = listed.filter(|(path, _)| path != "meta.json").peekable();
    // Old programs list no files. Every block has an index.
    if listed.peek().is_none() {
        return files.contains_key("index");
    }
    listed.all(|(path, size)| files.get(path) == Some(size))
}

#[cfg(test)]
mod tests {
    use varve_prometheus::block::ThanosMeta;

    use super::*;

    #[test]
    fn a_block_is_complete_with_all_files_in_their_sizes() {
        let listed = [("chunks/000001", 5), ("index", 7), ("meta.json", 0)];
        let listed = listed.map(|(path, size)| (path.to_owned(), size)).to_vec();
        let thanos = |files| {
            Some(ThanosMeta {
                files,
                ..ThanosMeta::default()
            })
        };
        let meta = BlockMeta {
            thanos: thanos(listed),
            ..BlockMeta::default()
        };
        let old = BlockMeta {
            thanos: thanos(Vec::new()),
            ..BlockMeta::default()
        };
        for (files, expect, expect_old) in [
            (
                &[("chunks/000001", 5), ("index", 7), ("meta.json", 1)][..],
                true,
                true,
            ),
            (
                &[("chunks/000001", 4), ("index", 7), ("meta.json", 1)],
                false,
                true,
            ),
            (&[("index", 7), ("meta.json", 1)], false, true),
            (&[("chunks/000001", 5), ("meta.json", 1)], false, false),
        ] {
            let files = files
                .iter()
                .map(|&(path, size)| (path.to_owned(), size))
                .collect();
            assert_eq!(
                (is_complete(&meta, &files), is_complete(&old, &files)),
                (expect, expect_old),
                "{files:?}"
            );
        }
    }
}
