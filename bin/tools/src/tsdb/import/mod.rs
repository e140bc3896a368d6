//! `varve tsdb import`: imports a Prometheus data directory, or the blocks of a bucket.

mod block;
mod bucket;
mod staging;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use varve_env::damage::DamageReport;
use varve_env::{Fs, RealFs};
use varve_objstore::BucketConfig;
use varve_prometheus::block::BlockReader;
use varve_prometheus::chunk::StartTimestamps;
use varve_prometheus::exemplars_and_metadata::{ExemplarsAndMetadata, read_exemplars_and_metadata};
use varve_prometheus::recover::RecoverOptions;
use varve_system::machine::files::remove_dir;
use varve_tsdb::{Db, Error, Options, WriteBatch};

use super::args::ImportArgs;
use crate::progress::{Progress, Unit};
use crate::report::damage_lines;
use crate::verdict::Verdict;
use crate::wal::prometheus::recover::{default_options, recover_with_progress};
use block::build_block;
use staging::Staging;

/// Number of exemplars per append.
const EXEMPLARS_PER_APPEND: usize = 1000;

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
    Ok(Verdict::from_damage(&damage))
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
    let total = sizes.iter().sum();
    let mut done = 0;
    let progress = Progress::start("building blocks", Unit::Bytes);
    for (source, size) in sources.iter().zip(sizes) {
        progress.show(done, total, "");
        build_block(fs, &args.source, source, staging, damage, &mut || Ok(()))?;
        done += size;
    }
    progress.finish();
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
    let mut batch = WriteBatch::default();
    let mut n_rejected = 0;
    for (chunk_idx, exemplars) in (0_u32..).zip(found.exemplars.chunks(EXEMPLARS_PER_APPEND)) {
        for (labels, exemplar) in exemplars {
            batch.push_exemplar(
                db.series(labels).context("store exemplars")?,
                exemplar.clone(),
                chunk_idx,
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
