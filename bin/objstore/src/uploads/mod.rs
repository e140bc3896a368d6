//! Uploads of finished blocks to a bucket, as Thanos' receive does, and removal of local blocks
//! that are there.
//!
//! A window of two hours is *settled* once its samples are too old to be appended
//! ([`Db::settled_ms`]). Its samples, without deleted ones, are exported to a Prometheus block in
//! the data directory, sent, read back and compared. Then `meta.json` follows, which makes the
//! block visible. The name of the block follows from its contents and the external labels. So a
//! repeated upload continues where an earlier one ended, and the bucket never has one block twice.
//!
//! Invariants
//! 1. A block in the bucket with a `meta.json` is complete and equals the local one.
//! 2. A local block is removed only after its windows have been exported again, and blocks of the
//!    bucket with exactly these samples, or blocks that were compacted from these, are complete
//!    there.
//! 3. The state of another bucket or other external labels is discarded. Then all windows are
//!    compared with the bucket.
//!
//! Threads: one. Memory: the export of one window, and one part of an upload. Disk: one exported
//! block. Crash: the next round repeats what is not in the state.

mod bucket_blocks;
mod groups;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use data_encoding::HEXLOWER;
use varve_context::{MemoryBudget, QueryContext};
use varve_env::{Fs, RealFs};
use varve_prometheus::block::{BlockMeta, Ulid};
use varve_prometheus::chunk::StartTimestamps;
use varve_prometheus::export::{ExportOptions, export_block};
use varve_prometheus::recover::range_of;
use varve_system::machine::files::remove_dir;
use varve_system::printing::error_chain;
use varve_tsdb::{Db, ReadContext};

use crate::metrics::{ObjstoreMetrics, UploadMetrics};
use crate::{BucketConfig, DELETION_MARK, Object, ObjectStore, Pace, Stop, file_checksum};
use bucket_blocks::BucketBlocks;
use groups::{Group, groups, windows};
pub use state::ExternalLabels;
use state::State;

/// Name of the directory in the data directory for the block that is being uploaded.
const STAGING: &str = "uploads.tmp";
/// Name of the state file in the data directory.
const STATE_FILE: &str = "uploads";
/// Key of the object that identifies the bucket.
const BUCKET_ID: &str = "varve/bucket-id";
/// Bytes of that object: 128 random bits in hexadecimal.
const BUCKET_ID_SIZE: u64 = 32;

/// Settings of uploads.
#[derive(Debug, Clone)]
pub struct UploadOptions {
    /// The bucket.
    pub bucket: BucketConfig,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Time between two rounds.
    pub interval: Duration,
    /// Maximum bandwidth. 0 is no limit.
    pub bytes_per_second: u64,
    /// Age from which local blocks are removed that are in the bucket.
    pub local_retention_ms: Option<i64>,
}

/// The samples that are uploaded.
#[derive(Debug)]
pub struct Source {
    /// The open store.
    pub db: Arc<Db>,
    /// The labels that identify this server's blocks ([`external_labels`]).
    pub labels: ExternalLabels,
    /// Bounds the memory of an export.
    pub memory: MemoryBudget,
}

/// Returns the samples to upload; `None` while no store is open.
type FindSource = Box<dyn Fn() -> Result<Option<Source>> + Send>;

/// Uploads blocks until it is stopped.
struct Uploader {
    find_source: FindSource,
    options: UploadOptions,
    store: ObjectStore,
    metrics: UploadMetrics,
    state: State,
    /// The complete blocks of the bucket, once they have been listed.
    blocks: Option<BucketBlocks>,
}

/// Returns the labels that identify this server's blocks.
///
/// # Errors
/// If there are none: Thanos rejects blocks without external labels.
pub fn external_labels(configured: &BTreeMap<String, String>) -> Result<ExternalLabels> {
    let labels: ExternalLabels = configured.clone().into_iter().collect();
    ensure!(
        !labels.is_empty(),
        "uploads (--objstore.config-file) need global.external_labels that no other server has, such as cluster and \
         replica"
    );
    Ok(labels)
}

/// Starts a thread that uploads the blocks of the store that `find_source` returns. It is called
/// once in each round.
///
/// # Errors
/// If the client or the thread cannot be created.
pub fn start(
    find_source: impl Fn() -> Result<Option<Source>> + Send + 'static,
    metrics: ObjstoreMetrics,
    options: UploadOptions,
) -> Result<Arc<Stop>> {
    let stop = Arc::new(Stop::default());
    let pace = Pace::new(Arc::clone(&stop), options.bytes_per_second);
    let store = ObjectStore::new(&options.bucket, pace, metrics.clone())?;
    let state = State::load(&options.data_dir.join(STATE_FILE));
    let mut uploader = Uploader {
        find_source: Box::new(find_source),
        options,
        store,
        metrics: metrics.uploads,
        state,
        blocks: None,
    };
    let stopped = Arc::clone(&stop);
    std::thread::Builder::new()
        .name("uploads".to_owned())
        .spawn(move || uploader.run(&stopped))
        .context("start a thread for uploads")?;
    Ok(stop)
}

impl Source {
    /// Returns the context of a read without a deadline.
    fn context(&self) -> ReadContext {
        ReadContext::unrestricted(QueryContext::new(Duration::MAX, self.memory.clone()))
    }

    /// Writes the samples of a window to a block in a new directory. Returns `None` if all are
    /// deleted.
    fn export(&self, staging: &Path, window: i64) -> Result<Option<BlockMeta>> {
        remove_dir(staging)?;
        let real: Arc<dyn Fs> = Arc::new(RealFs);
        let options = ExportOptions {
            matchers: Vec::new(),
            range: range_of(window),
            // Thanos knows only the encodings without them.
            start_timestamps: StartTimestamps::Drop,
            external_labels: self.labels.clone(),
        };
        Ok(export_block(
            &self.db,
            &real,
            &self.context(),
            staging,
            &options,
        )?)
    }
}

impl Uploader {
    /// Uploads in rounds until `stop`.
    fn run(&mut self, stop: &Stop) {
        loop {
            if let Err(error) = self.round() {
                if stop.wait(Duration::ZERO).is_err() {
                    return;
                }
                self.metrics.failures.inc();
                tracing::error!(
                    error = error_chain(&error),
                    "Uploads failed, they continue in the next round"
                );
            }
            if stop.wait(self.options.interval).is_err() {
                return;
            }
        }
    }

    /// Uploads all settled windows that are not in the bucket, then removes old local blocks that
    /// are.
    fn round(&mut self) -> Result<()> {
        let Some(source) = (self.find_source)()? else {
            return Ok(());
        };
        source.db.wait_replayed(&source.context())?;
        let Some(settled_ms) = source.db.settled_ms() else {
            return Ok(());
        };
        let mut settled = windows(&source.db.blocks())?;
        settled.retain(|window| range_of(*window).end_ms < settled_ms);
        self.show(&settled);
        self.bind(&source.labels)?;
        for &window in &settled {
            if self.state.has(window) {
                continue;
            }
            if self.blocks.is_none() {
                self.refresh()?;
            }
            self.upload_window(&source, window)?;
            self.show(&settled);
        }
        match self.options.local_retention_ms {
            Some(age_ms) => self.release(&source, age_ms, settled_ms),
            None => Ok(()),
        }
    }

    /// Reads the id of the bucket, or creates it, and discards the state of another bucket or of
    /// other labels.
    fn bind(&mut self, labels: &[(String, String)]) -> Result<()> {
        let id = match self.store.read(BUCKET_ID, BUCKET_ID_SIZE)? {
            Some(id) => {
                String::from_utf8(id).map_err(|_| anyhow!("object {BUCKET_ID:?} is not text"))?
            }
            None => {
                let mut random = [0; 16];
                getrandom::fill(&mut random)?;
                let id = HEXLOWER.encode(&random);
                self.store
                    .put(BUCKET_ID, BUCKET_ID_SIZE, &mut id.as_bytes())?;
                id
            }
        };
        if self.state.is_bound_to(&id, labels) {
            return Ok(());
        }
        tracing::info!(
            bucket = id,
            "Uploads begin with this bucket and these external labels"
        );
        // The state is saved with its first window.
        self.state.bind(id, labels.to_vec());
        self.blocks = None;
        Ok(())
    }

    /// Lists the blocks of the bucket.
    fn refresh(&mut self) -> Result<()> {
        let mut blocks = self.blocks.take().unwrap_or_default();
        blocks.refresh(&mut self.store)?;
        self.blocks = Some(blocks);
        Ok(())
    }

    fn show(&self, settled: &BTreeSet<i64>) {
        let mut pending = settled.clone();
        pending.retain(|window| !self.state.has(*window));
        let end_ms = match pending.first() {
            Some(window) => Some(range_of(*window).start_ms),
            None => settled.last().map(|window| range_of(*window).end_ms + 1),
        };
        if let Some(end_ms) = end_ms {
            self.metrics.uploaded_until.set(end_ms as f64 / 1000.0);
        }
        self.metrics.pending.set(pending.len() as i64);
    }

    /// Uploads the samples of a window, unless the bucket has them, and records the window. Returns
    /// `true` if they are there to stay. A window that cannot be read is logged, so that it does
    /// not hold up later ones.
    ///
    /// # Errors
    /// Errors of the bucket, and if the state cannot be written.
    fn upload_window(&mut self, source: &Source, window: i64) -> Result<bool> {
        let block = match source.export(&self.staging(), window) {
            Ok(block) => block,
            Err(error) => {
                self.metrics.failures.inc();
                let from = range_of(window).start_ms;
                tracing::error!(
                    from,
                    error = error_chain(&error),
                    "Cannot export a block for upload"
                );
                return Ok(false);
            }
        };
        let is_stored = match &block {
            Some(block) if !self.bucket_has(block.ulid) => self.upload(block)?,
            _ => true,
        };
        self.state
            .add(window, block.map_or(Ulid::default(), |block| block.ulid));
        let path = self.options.data_dir.join(STATE_FILE);
        self.state
            .save(&path)
            .with_context(|| format!("write {path:?}"))?;
        remove_dir(&self.staging())?;
        Ok(is_stored)
    }

    /// Sends the files of an exported block that the bucket does not have, `meta.json` last.
    /// Returns `false` if the block is there with a mark for deletion, which stays.
    fn upload(&mut self, block: &BlockMeta) -> Result<bool> {
        let started = Instant::now();
        let name = block.ulid.to_string();
        let dir = self.staging().join(&name);
        let stored = self.store.list(&format!("{name}/"))?;
        let has = |file: &str| {
            stored
                .iter()
                .any(|object| object.key[name.len() + 1..] == *file)
        };
        if has(DELETION_MARK) {
            tracing::warn!(
                block = name,
                "A block is not uploaded again: the bucket has it, marked for deletion"
            );
            return Ok(false);
        }
        let meta_key = format!("{name}/meta.json");
        if has("meta.json") {
            // The block was complete once, and has lost a file: it must not be read until it is
            // complete again.
            self.store.delete(&meta_key)?;
        }
        let bytes = self.send_files(block, &dir, &stored)?;
        self.send_meta(&meta_key, &dir)?;

        self.blocks.get_or_insert_default().add(block);
        self.metrics.blocks.inc();
        tracing::info!(
            block = name,
            from = block.min_ms,
            to = block.max_ms,
            n_series = block.stats.n_series,
            n_samples = block.stats.n_samples,
            bytes,
            duration = ?started.elapsed(),
            "Uploaded a block"
        );
        Ok(true)
    }

    /// Sends the files of a block that are not `stored`, and reads them back. Returns the number of
    /// bytes sent.
    fn send_files(&mut self, block: &BlockMeta, dir: &Path, stored: &[Object]) -> Result<u64> {
        let thanos = block
            .thanos
            .as_ref()
            .context("an exported block has external labels")?;
        let mut bytes = 0;
        for (path, size) in &thanos.files {
            if path == "meta.json" {
                continue;
            }
            let key = format!("{}/{path}", block.ulid);
            let file = dir.join(path);
            let is_stored = stored
                .iter()
                .any(|object| object.key == key && object.size == *size);
            let checksum = file_checksum(&file)?;
            if !is_stored || self.store.checksum(&key, *size)? != checksum {
                self.store.put_file(&key, &file)?;
                bytes += size;
                ensure!(
                    self.store.checksum(&key, *size)? == checksum,
                    "object {key:?} differs from what was sent"
                );
            }
        }
        Ok(bytes)
    }

    /// Sends the description of a block, which makes it visible, and reads it back.
    fn send_meta(&mut self, key: &str, dir: &Path) -> Result<()> {
        let meta =
            fs::read(dir.join("meta.json")).context("read meta.json of an exported block")?;
        self.store.put(key, meta.len() as u64, &mut &*meta)?;
        let read = self.store.read(key, meta.len() as u64)?;
        if read.as_ref() != Some(&meta) {
            self.store.delete(key)?;
            bail!("object {key:?} differs from what was sent");
        }
        Ok(())
    }

    /// Removes local blocks whose samples are older than an age, once the bucket has all of them.
    fn release(&mut self, source: &Source, age_ms: i64, settled_ms: i64) -> Result<()> {
        let Some(now_ms) = source.db.retention_now_ms() else {
            return Ok(());
        };
        let end_ms = now_ms.saturating_sub(age_ms).min(settled_ms);
        let mut old = groups(&source.db.blocks());
        old.retain(|group| range_of(*group.windows.end()).end_ms < end_ms);
        if !old.is_empty() {
            self.refresh()?;
        }
        for Group { numbers, windows } in old {
            let from = range_of(*windows.start()).start_ms;
            let to = range_of(*windows.end()).end_ms;
            let mut is_stored = true;
            for window in windows {
                // An import or a deletion may have changed the window since its upload.
                is_stored &= self.upload_window(source, window)?;
            }
            if is_stored {
                source.db.remove_blocks(&numbers)?;
                self.metrics.removed.inc_by(numbers.len() as u64);
                tracing::info!(
                    blocks = numbers.len(),
                    from,
                    to,
                    "Removed local blocks whose samples are in the bucket"
                );
            }
        }
        Ok(())
    }

    /// Returns `true` if a block, or a block compacted from it, is in the bucket.
    fn bucket_has(&self, ulid: Ulid) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.has(ulid))
    }

    fn staging(&self) -> PathBuf {
        self.options.data_dir.join(STAGING)
    }
}
