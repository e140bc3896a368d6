//! `varve tsdb import`: from a Prometheus data directory into Varve's.

mod staging;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use varve_prometheus::beside::{BesideBlocks, read_beside_blocks};
use varve_prometheus::block::BlockReader;
use varve_prometheus::chunk::StartTimes;
use varve_prometheus::import::{Imported, import_block};
use varve_prometheus::recover::{CONCURRENCY_MAX, RecoverOptions};
use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::fs::{Fs, RealFs};
use varve_tsdb::{Db, Error, Options, WriteBatch};

use staging::{Built, Staging};

use crate::machine;
use crate::tools::wal::{self, Progress, Unit, Verdict, damage_lines, recover_with_progress};

/// Exemplars that are appended with one request.
const EXEMPLARS_AT_ONCE: usize = 1000;

/// Arguments of `varve tsdb import`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 all of it was read, 1 damage was found and the rest was imported, 2 it could not be done."
)]
pub(crate) struct ImportArgs {
    /// Prometheus' data directory; it is read alone, and may be in use
    #[arg(value_name = "PROM_DIR")]
    pub(crate) source: PathBuf,

    /// Varve's data directory; a server that has it open takes the blocks in when it is asked to
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,
}

/// Builds blocks of all that a Prometheus data directory holds, then has them taken in at once.
pub(crate) fn import(args: &ImportArgs) -> ExitCode {
    wal::exit_code(run(args))
}

fn run(args: &ImportArgs) -> Result<Verdict> {
    if !args.source.is_dir() {
        bail!("data directory {:?} does not exist", args.source);
    }
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut staging = Staging::open(&args.path)?;
    let mut damage = DamageReport::default();
    build(&fs, args, &mut staging, &mut damage)?;
    let built = staging.built();
    staging.hand_over(&args.path.join("import"))?;
    eprint!("{}", damage_lines(&damage));
    println!("{} samples in {} blocks were built", built.n_samples, built.n_blocks);
    take_in(args)?;
    Ok(if damage.n_damaged() == 0 { Verdict::Sound } else { Verdict::Damaged })
}

fn build(fs: &Arc<dyn Fs>, args: &ImportArgs, staging: &mut Staging, damage: &mut DamageReport) -> Result<()> {
    let options = RecoverOptions {
        memory_bytes: usize::try_from(machine::Memory::find().limit_bytes() / 4).unwrap_or(usize::MAX),
        concurrency: machine::cores().min(CONCURRENCY_MAX),
        starts: StartTimes::Kept,
        ..RecoverOptions::default()
    };
    let logs_dir = staging.logs_dir();
    // Of a log that has grown since an earlier run other blocks are made.
    remove_dir(&logs_dir)?;
    let report = recover_with_progress(fs, &args.source, &logs_dir, &options).context("read the log")?;
    damage.append(report.damage);
    let mut sources: Vec<PathBuf> = BlockReader::list(&**fs, &args.source).context("list the blocks")?;
    sources.extend(report.blocks.iter().map(|block| logs_dir.join(block.ulid.to_string())));
    let sizes: Vec<u64> = sources.iter().map(|source| BlockReader::size(&**fs, source)).collect();
    let (mut done, total) = (0, sizes.iter().sum());
    let progress = Progress::start("building blocks", Unit::Bytes);
    for (source, size) in sources.iter().zip(sizes) {
        progress.show(done, total, "");
        build_of(fs, &args.source, source, staging, damage)?;
        done += size;
    }
    progress.finish();
    Ok(())
}

/// Builds the store's blocks of one of Prometheus, which is in its data directory or was made of its log.
fn build_of(
    fs: &Arc<dyn Fs>,
    data_dir: &Path,
    source: &Path,
    staging: &mut Staging,
    damage: &mut DamageReport,
) -> Result<()> {
    // A block without a description is no block to Prometheus either; `import_block` says so.
    if source.join("meta.json").is_file() && staging.has_finished(source)? {
        return Ok(());
    }
    let n_damaged = damage.n_damaged();
    // The number in the name decides which of two samples at one time stands: that of Prometheus' older block.
    match import_block(fs, source, &staging.blocks_dir(), staging.built().n_blocks + 1, damage) {
        Ok(Imported { n_blocks, n_samples }) => {
            let built = Built { n_blocks, n_samples };
            match damage.n_damaged() == n_damaged {
                true => staging.finish(source, built)?,
                false => staging.add(built),
            }
        }
        // A block that tells nothing costs itself alone.
        Err(Error::Corrupt { path, offset, reason }) => damage.push(&path, offset, DamageKind::Corrupt, reason),
        Err(error @ Error::Version { .. }) => damage.push(source, 0, DamageKind::Unsupported, error.to_string()),
        Err(Error::Io { op, path, source: error }) if path.starts_with(data_dir) => {
            damage.push(&path, 0, DamageKind::Corrupt, format!("{op}: {error}"));
        }
        Err(error) => return Err(error).with_context(|| format!("import the block {source:?}")),
    }
    Ok(())
}

/// Takes the blocks in, and what the log has beside them; or says how the server does that has the directory open.
fn take_in(args: &ImportArgs) -> Result<()> {
    let path = &args.path;
    let options = Options { background: false, ..Options::default() };
    let exemplars_max = options.exemplars_max;
    match Db::open(path, options) {
        Ok(db) => {
            let n_blocks = db.import().context("take the blocks in")?;
            println!("{n_blocks} blocks were taken in");
            let beside = read_beside_blocks(&RealFs, &args.source, exemplars_max).context("read the log")?;
            take_in_beside(&db, beside)
        }
        Err(Error::Locked { .. }) => {
            println!("a server has {path:?} open; it takes them in with: POST /api/v1/admin/tsdb/import");
            println!(
                "exemplars and metadata are not among them: import again when no server has it open to have these"
            );
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("open data directory {path:?}")),
    }
}

/// Stores exemplars and metadata. What the store knows of a metric family stands.
fn take_in_beside(db: &Db, beside: BesideBlocks) -> Result<()> {
    let known = db.metadata();
    let new: Vec<_> = beside.metadata.into_iter().filter(|(family, _)| !known.contains_key(family)).collect();
    let n_families = new.len();
    db.set_metadata(new.iter().map(|(family, metadata)| (family.as_str(), metadata.clone())))
        .context("keep metadata")?;
    let (mut batch, mut n_rejected) = (WriteBatch::default(), 0);
    for (at, exemplars) in (0_u32..).zip(beside.exemplars.chunks(EXEMPLARS_AT_ONCE)) {
        for (labels, exemplar) in exemplars {
            batch.push_exemplar(db.series(labels).context("keep exemplars")?, exemplar.clone(), at);
        }
        db.append(&mut batch).context("keep exemplars")?;
        n_rejected += batch.rejected_exemplars().len();
        batch.clear();
    }
    let n_exemplars = beside.exemplars.len() - n_rejected;
    println!("{n_exemplars} exemplars and metadata of {n_families} metric families were taken in");
    let n_left_out = beside.n_exemplars_left_out + n_rejected as u64;
    if n_left_out + beside.n_metadata_left_out > 0 {
        println!("left out: {n_left_out} exemplars, metadata of {} series", beside.n_metadata_left_out);
    }
    Ok(())
}

fn remove_dir(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {dir:?}"))
        }
        _ => Ok(()),
    }
}
