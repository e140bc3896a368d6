//! `varve tsdb import`: imports a Prometheus data directory, or the blocks of a bucket.

mod block;
mod bucket;
mod staging;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use varve_advise::counted;
use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, RealFs};
use varve_model::TimeRange;
use varve_objstore::BucketConfig;
use varve_prometheus::block::BlockReader;
use varve_prometheus::recover::{ExemplarsAndMetadata, RecoverOptions, import_head};
use varve_system::machine::files::remove_dir;
use varve_tsdb::{Db, Error, Options, WriteBatch};

use super::args::ImportArgs;
use crate::data_dir::{ensure_not_foreign, ensure_prometheus};
use crate::progress::{Progress, Unit};
use crate::report::{damage_lines, overlap_line, totals_table};
use crate::verdict::Verdict;
use crate::wal::prometheus::recover::{default_options, with_progress};
use block::build_block;
use staging::{Built, Staging};

/// Number of exemplars per append.
const EXEMPLARS_PER_APPEND: usize = 1000;
/// Default of `--storage.tsdb.retention.time`.
const RETENTION_DEFAULT_DAYS: i64 = 15;
const DAY_MS: i64 = 86_400_000;

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

/// The result of building blocks.
pub(super) struct Staged {
    /// Where the blocks wait for an import; `None` if there are none.
    pub(super) dir: Option<PathBuf>,
    damage: DamageReport,
    built: Built,
    totals: SampleTotals,
    /// The time ranges of the Prometheus blocks.
    source_ranges: Vec<TimeRange>,
    /// What the blocks do not store; `None` if the source has no WAL.
    exemplars_and_metadata: Option<ExemplarsAndMetadata>,
}

impl Staged {
    /// Fails if something of the source is damaged.
    pub(super) fn ensure_complete(&self) -> Result<()> {
        ensure!(
            self.damage.n_damaged() == 0,
            "{}",
            damage_lines(&self.damage).trim_end()
        );
        Ok(())
    }

    fn print(&self) {
        eprint!("{}", damage_lines(&self.damage));
        println!(
            "built {} with {}",
            counted(self.built.n_blocks, "block"),
            counted(self.built.n_samples, "sample")
        );
        print!("{}", totals_table(&self.totals, "written"));
        print!("{}", overlap_line(self.source_ranges.clone()));
    }
}

/// Builds blocks from a Prometheus data directory, then imports all of them at once.
pub(crate) fn import(args: &ImportArgs) -> Result<Verdict> {
    let staged = stage(args)?;
    staged.print();
    let n_imported = import_staged(args, staged.exemplars_and_metadata)?;
    if staged.built.n_samples == 0 && n_imported == 0 {
        eprintln!("nothing was imported from {:?}", args.source);
        return Ok(Verdict::Damaged);
    }
    Ok(Verdict::new(&staged.damage, &staged.totals))
}

/// Builds blocks and puts them where the store imports them from.
///
/// # Errors
/// If the source does not exist, or another import is running, and for I/O errors.
pub(super) fn stage(args: &ImportArgs) -> Result<Staged> {
    let bucket = args.bucket()?;
    if bucket.is_none() {
        ensure_prometheus(&args.source)?;
    }
    ensure_not_foreign(&args.path)?;
    ensure!(
        args.block_labels.is_empty() || bucket.is_some(),
        "--block-label needs a bucket, not a data directory"
    );
    for (idx, (name, _)) in args.external_labels.iter().enumerate() {
        let is_repeated = args.external_labels[..idx].iter().any(|it| it.0 == *name);
        ensure!(!is_repeated, "--external-label has {name:?} twice");
    }
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut staging = Staging::open(&args.path, &args.external_labels)?;
    let mut damage = DamageReport::default();
    let exemplars_and_metadata = match &bucket {
        Some(bucket) => {
            bucket::build(&fs, bucket, args, &mut staging, &mut damage)?;
            None
        }
        None => Some(build(&fs, args, &mut staging, &mut damage)?),
    };
    let built = staging.built();
    let totals = staging.totals().clone();
    let source_ranges = staging.source_ranges().to_vec();
    let dir = staging.hand_over(&*fs, &args.path.join("import"))?;
    Ok(Staged {
        dir,
        damage,
        built,
        totals,
        source_ranges,
        exemplars_and_metadata,
    })
}

fn build(
    fs: &Arc<dyn Fs>,
    args: &ImportArgs,
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<ExemplarsAndMetadata> {
    let head_dir = staging.head_dir();
    // The WAL may have grown since an earlier run.
    remove_dir(&head_dir)?;
    // Prometheus may cut a block from its head meanwhile. So the head is read before the blocks are
    // listed: a sample is in the blocks of both then, not of none.
    let head = with_progress(|progress| {
        let options = RecoverOptions {
            external_labels: args.external_labels.clone(),
            ..default_options(4)
        };
        let exemplars_max = store_options().exemplars_max;
        import_head(
            fs,
            &args.source,
            &head_dir,
            &options,
            exemplars_max,
            progress,
        )
    })
    .context("read the WAL")?;
    staging.count(&head.report.totals);
    damage.append(head.report.damage);
    let blocks = BlockReader::list(&**fs, &args.source).context("list the blocks")?;
    build_blocks(fs, args, &blocks, staging, damage)?;
    staging.add_head(Built {
        n_blocks: head.n_blocks,
        n_samples: head.n_samples,
        ..Built::default()
    })?;
    Ok(head.exemplars_and_metadata)
}

/// Builds blocks of the store from Prometheus' own blocks.
fn build_blocks(
    fs: &Arc<dyn Fs>,
    args: &ImportArgs,
    blocks: &[PathBuf],
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<()> {
    let sizes: Vec<u64> = blocks
        .iter()
        .map(|block| BlockReader::size(&**fs, block))
        .collect();
    let total = sizes.iter().sum();
    let mut done = 0;
    let progress = Progress::start("building blocks", Unit::Bytes);
    for (block, size) in blocks.iter().zip(sizes) {
        progress.show(done, total, "");
        build_block(fs, &args.source, block, staging, damage, &mut || Ok(()))?;
        done += size;
    }
    progress.finish();
    Ok(())
}

fn store_options() -> Options {
    Options {
        background: false,
        ..Options::default()
    }
}

/// Imports the blocks, and exemplars and metadata of the WAL, or prints how the server that has the
/// directory open does it. Returns the number of imported blocks, including those of an earlier run.
fn import_staged(
    args: &ImportArgs,
    exemplars_and_metadata: Option<ExemplarsAndMetadata>,
) -> Result<usize> {
    let path = &args.path;
    match Db::open(path, store_options()) {
        Ok(db) => {
            let n_blocks = db.import().context("import the blocks")?;
            println!("imported {}", counted(n_blocks, "block"));
            print_age(&db);
            if let Some(found) = exemplars_and_metadata {
                store_exemplars_and_metadata(&db, found)?;
            }
            Ok(n_blocks)
        }
        Err(Error::Locked { .. }) => {
            println!("a server has {path:?} open; to import the blocks: varve admin import");
            if exemplars_and_metadata.is_some() {
                println!(
                    "exemplars and metadata are not imported: repeat the import while no server has the directory open"
                );
            }
            Ok(0)
        }
        Err(error) => Err(error).with_context(|| format!("open data directory {path:?}")),
    }
}

/// Says which retention the samples need, if they are older than the default one. The next server
/// would remove them without a word.
fn print_age(db: &Db) {
    let Some(range) = db.time_range() else {
        return;
    };
    let age_ms = Timestamp::now()
        .as_millisecond()
        .saturating_sub(range.start_ms);
    let n_days = age_ms / DAY_MS + 1;
    if n_days > RETENTION_DEFAULT_DAYS {
        println!(
            "the oldest sample is {n_days} days old: a server removes it unless its --storage.tsdb.retention.time is \
             longer (default {RETENTION_DEFAULT_DAYS}d)"
        );
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
    println!(
        "imported {} and metadata of {}",
        counted(n_exemplars, "exemplar"),
        counted(n_families, "metric")
    );
    let n_skipped = found.n_exemplars_skipped + n_rejected as u64;
    if n_skipped + found.n_metadata_skipped > 0 {
        println!(
            "skipped {} and metadata of {} series",
            counted(n_skipped, "exemplar"),
            found.n_metadata_skipped
        );
    }
    Ok(())
}
