//! `varve tsdb import`: imports a Prometheus data directory, or the blocks of a bucket.

mod bucket;
mod staging;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use varve_fs::damage::{DamageKind, DamageReport};
use varve_fs::{Fs, RealFs};
use varve_objstore::BucketConfig;
use varve_prometheus::block::BlockReader;
use varve_prometheus::chunk::StartTimestamps;
use varve_prometheus::exemplars_and_metadata::{ExemplarsAndMetadata, read_exemplars_and_metadata};
use varve_prometheus::import::{Imported, import_block};
use varve_prometheus::recover::RecoverOptions;
use varve_system::machine::files::remove_dir;
use varve_tsdb::{Db, Error, Options, WriteBatch};

use staging::{Built, Staging};

use crate::label::parse_label;
use crate::wal::{
    self, Progress, Unit, Verdict, damage_lines, default_options, recover_with_progress,
};

/// Number of exemplars per append.
const EXEMPLARS_PER_APPEND: usize = 1000;

/// Arguments of `varve tsdb import`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 no damage, 1 damage was found and the rest imported, 2 the command failed."
)]
pub struct ImportArgs {
    /// Prometheus' data directory; read-only, may be in use. Or a bucket with blocks of Thanos or
    /// Mimir: a file in the format of Thanos' objstore configuration, or s3://BUCKET/PREFIX
    #[arg(value_name = "PROM_DIR|BUCKET")]
    pub(crate) source: PathBuf,

    /// Varve's data directory; if a server has it open, the server imports the blocks on request
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,

    /// Only blocks of the bucket with this external label; may be repeated
    #[arg(long = "block-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) block_labels: Vec<(String, String)>,
}

impl ImportArgs {
    /// Returns the bucket that is the source, if it is not a data directory.
    fn bucket(&self) -> Result<Option<BucketConfig>> {
        let argument = self
            .source
            .to_str()
            .filter(|text| text.starts_with("s3://") || self.source.is_file());
        argument.map(BucketConfig::from_argument).transpose()
    }
}

/// Builds blocks from a Prometheus data directory, then imports all of them at once.
pub(crate) fn import(args: &ImportArgs) -> Result<Verdict> {
    let verdict = stage(args)?;
    import_staged(args)?;
    Ok(verdict)
}

/// Builds blocks and puts them where the store imports them from.
///
/// # Errors
/// If the source does not exist, or another import is running, and for I/O errors.
pub(super) fn stage(args: &ImportArgs) -> Result<Verdict> {
    let bucket = args.bucket()?;
    if bucket.is_none() && !args.source.is_dir() {
        bail!("data directory {:?} does not exist", args.source);
    }
    ensure!(
        args.block_labels.is_empty() || bucket.is_some(),
        "--block-label needs a bucket, not a data directory"
    );
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut staging = Staging::open(&args.path)?;
    let mut damage = DamageReport::default();
    match &bucket {
        Some(bucket) => bucket::build(&fs, bucket, &args.block_labels, &mut staging, &mut damage)?,
        None => build(&fs, args, &mut staging, &mut damage)?,
    }
    let built = staging.built();
    staging.hand_over(&*fs, &args.path.join("import"))?;
    eprint!("{}", damage_lines(&damage));
    println!(
        "built {} blocks with {} samples",
        built.n_blocks, built.n_samples
    );
    Ok(wal::verdict(&damage))
}

fn build(
    fs: &Arc<dyn Fs>,
    args: &ImportArgs,
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<()> {
    let options = RecoverOptions {
        start_timestamps: StartTimestamps::Keep,
        ..default_options(4)
    };
    let logs_dir = staging.logs_dir();
    // The WAL may have grown since an earlier run.
    remove_dir(&logs_dir)?;
    let report =
        recover_with_progress(fs, &args.source, &logs_dir, &options).context("read the WAL")?;
    damage.append(report.damage);
    let mut sources: Vec<PathBuf> =
        BlockReader::list(&**fs, &args.source).context("list the blocks")?;
    sources.extend(
        report
            .blocks
            .iter()
            .map(|block| logs_dir.join(block.ulid.to_string())),
    );
    let sizes: Vec<u64> = sources
        .iter()
        .map(|source| BlockReader::size(&**fs, source))
        .collect();
    let (mut done, total) = (0, sizes.iter().sum());
    let progress = Progress::start("building blocks", Unit::Bytes);
    for (source, size) in sources.iter().zip(sizes) {
        progress.show(done, total, "");
        build_block(fs, &args.source, source, staging, damage, &mut || Ok(()))?;
        done += size;
    }
    progress.finish();
    Ok(())
}

/// Builds blocks of the store from one block of Prometheus. Calls `fetch` before it reads more than
/// the description.
fn build_block(
    fs: &Arc<dyn Fs>,
    data_dir: &Path,
    source: &Path,
    staging: &mut Staging,
    damage: &mut DamageReport,
    fetch: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
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
        damage,
    ) {
        Ok(Imported {
            n_blocks,
            n_samples,
        }) => {
            let built = Built {
                n_blocks,
                n_samples,
            };
            match damage.n_damaged() == n_damaged {
                true => staging.finish(source, built)?,
                false => staging.add(built),
            }
        }
        // A block that cannot be opened costs only itself.
        Err(Error::Corrupt {
            path,
            offset,
            reason,
        }) => damage.push(&path, offset, DamageKind::Corrupt, reason),
        Err(error @ Error::Version { .. }) => {
            damage.push(source, 0, DamageKind::Unsupported, error.to_string())
        }
        // The target may lie inside of the data directory. Its errors are no damage of the block.
        Err(Error::Io {
            op,
            path,
            source: error,
        }) if path.starts_with(source) && source.parent() == Some(data_dir) => {
            damage.push(&path, 0, DamageKind::Corrupt, format!("{op}: {error}"));
        }
        Err(error) => return Err(error).with_context(|| format!("import the block {source:?}")),
    }
    Ok(())
}

/// Imports the blocks, and exemplars and metadata of the WAL, or prints how the server that has the
/// directory open does it.
fn import_staged(args: &ImportArgs) -> Result<()> {
    let path = &args.path;
    let options = Options {
        background: false,
        ..Options::default()
    };
    let exemplars_max = options.exemplars_max;
    match Db::open(path, options) {
        Ok(db) => {
            let n_blocks = db.import().context("import the blocks")?;
            println!("imported {n_blocks} blocks");
            if !args.source.is_dir() {
                return Ok(());
            }
            let found = read_exemplars_and_metadata(&RealFs, &args.source, exemplars_max)
                .context("read the WAL")?;
            store_exemplars_and_metadata(&db, found)
        }
        Err(Error::Locked { .. }) => {
            println!(
                "a server has {path:?} open; to import the blocks: POST /api/v1/admin/tsdb/import"
            );
            if args.source.is_dir() {
                println!(
                    "exemplars and metadata are not imported: repeat the import while no server has the directory open"
                );
            }
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("open data directory {path:?}")),
    }
}

/// Stores exemplars and metadata. Existing metadata of a metric family wins.
fn store_exemplars_and_metadata(db: &Db, found: ExemplarsAndMetadata) -> Result<()> {
    let known = db.metadata();
    let new: Vec<_> = found
        .metadata
        .into_iter()
        .filter(|(family, _)| !known.contains_key(family.as_str()))
        .collect();
    let n_families = new.len();
    db.set_metadata(
        new.iter()
            .map(|(family, metadata)| (family.as_str(), metadata.clone())),
    )
    .context("store metadata")?;
    let (mut batch, mut n_rejected) = (WriteBatch::default(), 0);
    for (at, exemplars) in (0_u32..).zip(found.exemplars.chunks(EXEMPLARS_PER_APPEND)) {
        for (labels, exemplar) in exemplars {
            batch.push_exemplar(
                db.series(labels).context("store exemplars")?,
                exemplar.clone(),
                at,
            );
        }
        db.append(&mut batch).context("store exemplars")?;
        n_rejected += batch.rejected_exemplars().len();
        batch.clear();
    }
    let n_exemplars = found.exemplars.len() - n_rejected;
    println!("imported {n_exemplars} exemplars and metadata of {n_families} metric families");
    let n_skipped = found.n_exemplars_skipped + n_rejected as u64;
    if n_skipped + found.n_metadata_skipped > 0 {
        println!(
            "skipped {n_skipped} exemplars and metadata of {} series",
            found.n_metadata_skipped
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such an error used to count as damage of the block, and the rest was imported.
    #[test]
    fn an_import_fails_for_errors_of_a_target_inside_the_source() {
        let source = tempfile::tempdir().unwrap();
        let block = source.path().join("01ARZ3NDEKTSV4RRFFQ69G5FAV");
        std::fs::create_dir(&block).unwrap();
        std::fs::write(block.join("meta.json"), "{}").unwrap();
        let mut staging = Staging::open(&source.path().join("data")).unwrap();
        let (fs, mut damage): (Arc<dyn Fs>, _) = (Arc::new(RealFs), DamageReport::default());
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
