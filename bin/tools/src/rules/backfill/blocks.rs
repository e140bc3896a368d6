//! Recorded samples, as blocks that the server imports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use varve_client::Client;
use varve_model::{Labels, Sample};

use crate::tsdb::{Samples, stage_blocks, write_block};

/// Number of samples in memory above which they are written, 16 bytes each.
pub(super) const SAMPLES_MAX: usize = 16 << 20;

/// Recorded samples: those of one window in memory, the others in blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    dir: PathBuf,
    n_blocks: usize,
    series: HashMap<Labels, Samples>,
    n_samples: usize,
}

impl Blocks {
    /// Creates the directory `dir` for blocks.
    pub(super) fn create(dir: PathBuf) -> Result<Self> {
        std::fs::create_dir(&dir).with_context(|| format!("create {dir:?}"))?;
        Ok(Self {
            dir,
            n_blocks: 0,
            series: HashMap::new(),
            n_samples: 0,
        })
    }

    /// Adds samples of a window.
    pub(super) fn add(&mut self, labels: Labels, samples: Vec<Sample>) -> Result<()> {
        if samples.is_empty() {
            return Ok(());
        }
        self.n_samples += samples.len();
        let floats = &mut self.series.entry(labels).or_default().floats;
        floats.extend(samples);
        if self.n_samples > SAMPLES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the samples in memory.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.n_samples == 0 {
            return Ok(());
        }
        self.n_samples = 0;
        self.n_blocks += 1;
        let series = std::mem::take(&mut self.series);
        write_block(&self.dir, &format!("backfill-{}", self.n_blocks), series).map(drop)
    }

    /// Lets the server with the data directory `path` import all samples.
    pub(super) fn import(mut self, client: &mut Client, path: &Path) -> Result<()> {
        self.flush()?;
        if self.n_blocks == 0 {
            return Ok(());
        }
        stage_blocks(&self.dir, path)?;
        let imported = client.post_data("/api/v1/admin/tsdb/import", "")?;
        if imported.get("blocks").and_then(Value::as_u64) == Some(0) {
            bail!("the server has not imported the blocks: {path:?} is not its data directory");
        }
        std::fs::remove_dir_all(&self.dir).with_context(|| format!("remove {:?}", self.dir))
    }
}
