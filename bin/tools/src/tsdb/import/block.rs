//! One block of Prometheus in an import.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_prometheus::import::{Imported, import_block};
use varve_tsdb::Error;

use super::staging::{Built, Staging};

/// Builds blocks of the store from one block of Prometheus. Calls `fetch` before it reads more than
/// the description.
pub(super) fn build_block(
    fs: &Arc<dyn Fs>,
    data_dir: &Path,
    source: &Path,
    staging: &mut Staging,
    damage: &mut DamageReport,
    fetch: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    staging.add_source(&**fs, source);
    // A directory without a description is not a block. `import_block` reports it.
    if source.join("meta.json").is_file() && staging.has_finished(source)? {
        return Ok(());
    }
    fetch()?;
    let n_damaged = damage.n_damaged();
    // Of two samples with the same timestamp, the one in the block with the lower number wins,
    // which is the older Prometheus block.
    match import_block(
        fs,
        source,
        &staging.blocks_dir(),
        staging.built().n_blocks + 1,
        staging.external_labels(),
        damage,
    ) {
        Ok(Imported { n_blocks, totals }) => {
            let built = Built {
                n_blocks,
                n_samples: totals.n_kept,
                n_duplicates: totals.n_duplicates,
                n_deleted: totals.n_deleted,
            };
            staging.count(&totals);
            if damage.n_damaged() == n_damaged {
                staging.finish(source, built)?;
            } else {
                staging.add(built);
            }
        }
        // A block that cannot be opened costs only itself.
        Err(Error::Corrupt {
            path,
            offset,
            reason,
        }) => {
            damage.push(&path, offset, DamageKind::Corrupt, reason);
            staging.lose_block(&**fs, source);
        }
        Err(error @ Error::Version { .. }) => {
            damage.push(source, 0, DamageKind::Unsupported, error.to_string());
            staging.lose_block(&**fs, source);
        }
        // The target may lie inside of the data directory. Its errors are no damage of the block.
        Err(Error::Io {
            op,
            path,
            source: error,
        }) if path.starts_with(source) && source.parent() == Some(data_dir) => {
            damage.push(&path, 0, DamageKind::Corrupt, format!("{op}: {error}"));
            staging.lose_block(&**fs, source);
        }
        Err(error) => return Err(error).with_context(|| format!("import the block {source:?}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use varve_env::RealFs;

    use super::*;

    /// Such an error used to count as damage of the block, and the rest was imported.
    #[test]
    fn an_import_fails_for_errors_of_a_target_inside_the_source() {
        let source = tempfile::tempdir().unwrap();
        let block = source.path().join("01ARZ3NDEKTSV4RRFFQ69G5FAV");
        std::fs::create_dir(&block).unwrap();
        std::fs::write(block.join("meta.json"), "{}").unwrap();
        let mut staging = Staging::open(&source.path().join("data"), &[]).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let mut damage = DamageReport::default();
        let blocks_dir = staging.blocks_dir();
        let mut break_target =
            || Ok(std::fs::remove_dir(&blocks_dir).and_then(|()| std::fs::write(&blocks_dir, ""))?);
        let built = build_block(
            &fs,
            source.path(),
            &block,
            &mut staging,
            &mut damage,
            &mut break_target,
        );
        assert!(format!("{:#}", built.unwrap_err()).contains("import.tmp"));
        assert_eq!(damage.n_damaged(), 0);
    }
}
