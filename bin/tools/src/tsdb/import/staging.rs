//! The staging area of an import: an interrupted import continues after what it finished.
//!
//! ```text
//! import.tmp/lock       locked during an import
//! import.tmp/head/      blocks of the store, built from Prometheus' WAL, WBL and head chunks, numbered from 1
//! import.tmp/bucket/    the block of a bucket that is being read
//! import.tmp/blocks/    blocks of the store, built from Prometheus' own blocks, then those of its head
//! import.tmp/finished   one line of JSON per finished Prometheus block, in the order in which they are read
//! ```
//!
//! Blocks of the store are numbered in that order, and those of the head come last. So the result of an earlier run is valid up to
//! the first Prometheus block that differs from its line: in its name, in its description, which
//! a compaction changes, or in the external labels that its series got.
//!
//! Crash: a line is written once its blocks are synced. A truncated line is ignored. One rename
//! hands all blocks over, after the lines have been removed, so no block is handed over twice.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, Lock, RealFs, create_dir_durably};
use varve_model::TimeRange;
use varve_prometheus::block::BlockReader;
use varve_prometheus::losses::lose_block;

/// Name of the directory in the data directory.
const NAME: &str = "import.tmp";

/// Blocks and samples built from one or more Prometheus blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Built {
    pub(super) n_blocks: u64,
    pub(super) n_samples: u64,
    /// Samples with the timestamp of another one in the same series of the same block.
    pub(super) n_duplicates: u64,
    /// Samples that tombstones delete.
    pub(super) n_deleted: u64,
}

impl Built {
    /// Returns what became of the samples of undamaged blocks.
    pub(super) fn totals(self) -> SampleTotals {
        SampleTotals {
            n_found: self.n_samples + self.n_duplicates + self.n_deleted,
            n_kept: self.n_samples,
            n_duplicates: self.n_duplicates,
            n_deleted: self.n_deleted,
            ..SampleTotals::default()
        }
    }
}

/// A finished Prometheus block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Finished {
    /// Version of the program that built it: another version may build other blocks.
    program: String,
    block: String,
    meta: String,
    external_labels: Vec<(String, String)>,
    built: Built,
}

/// The staging area of an import.
#[derive(Debug)]
pub(super) struct Staging {
    dir: PathBuf,
    /// The external labels that series get.
    external_labels: Vec<(String, String)>,
    _lock: Box<dyn Lock>,
    /// Remaining lines of an earlier run, the next one last.
    earlier: Vec<Finished>,
    lines: File,
    /// Size of the valid lines.
    lines_size: u64,
    built: Built,
    totals: SampleTotals,
    /// The time ranges of the Prometheus blocks.
    source_ranges: Vec<TimeRange>,
}

impl Staging {
    /// Opens the staging area of a data directory, with the result of an interrupted import if any.
    /// The series of the import get the external labels.
    ///
    /// # Errors
    /// If another import is running, or for I/O errors.
    pub(super) fn open(data_dir: &Path, external_labels: &[(String, String)]) -> Result<Self> {
        let dir = data_dir.join(NAME);
        let blocks_dir = dir.join("blocks");
        fs::create_dir_all(&blocks_dir).with_context(|| format!("create {blocks_dir:?}"))?;
        let lock_path = dir.join("lock");
        let lock = RealFs
            .lock(&lock_path)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => {
                    anyhow::anyhow!("another import into {data_dir:?} is running")
                }
                _ => anyhow::Error::from(error).context(format!("lock {lock_path:?}")),
            })?;
        let path = dir.join("finished");
        let lines = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("create {path:?}"))?;
        // An invalid line ends the valid ones.
        let text = fs::read(&path).with_context(|| format!("read {path:?}"))?;
        let text = String::from_utf8_lossy(&text);
        let mut earlier: Vec<Finished> = text
            .lines()
            .map_while(|line| serde_json::from_str(line).ok())
            .collect();
        let n_blocks = earlier.iter().map(|finished| finished.built.n_blocks).sum();
        if numbers(&RealFs, &blocks_dir)?
            .iter()
            .filter(|&&number| number <= n_blocks)
            .count() as u64
            != n_blocks
        {
            // Some blocks were removed.
            earlier.clear();
        }
        earlier.reverse();
        Ok(Self {
            dir,
            external_labels: external_labels.to_vec(),
            _lock: lock,
            earlier,
            lines,
            lines_size: 0,
            built: Built::default(),
            totals: SampleTotals::default(),
            source_ranges: Vec::new(),
        })
    }

    /// Returns the directory for blocks built from the head of Prometheus.
    pub(super) fn head_dir(&self) -> PathBuf {
        self.dir.join("head")
    }

    /// Returns the directory for blocks downloaded from a bucket.
    pub(super) fn bucket_dir(&self) -> PathBuf {
        self.dir.join("bucket")
    }

    /// Returns the directory for blocks of the store.
    pub(super) fn blocks_dir(&self) -> PathBuf {
        self.dir.join("blocks")
    }

    /// Returns the external labels that series get.
    pub(super) fn external_labels(&self) -> &[(String, String)] {
        &self.external_labels
    }

    /// Returns what has been built so far.
    pub(super) fn built(&self) -> Built {
        self.built
    }

    /// Returns what became of the samples that were found.
    pub(super) fn totals(&self) -> &SampleTotals {
        &self.totals
    }

    /// Returns the time ranges of the Prometheus blocks.
    pub(super) fn source_ranges(&self) -> &[TimeRange] {
        &self.source_ranges
    }

    /// Adds the time range of a Prometheus block, if it has a description.
    pub(super) fn add_source(&mut self, fs: &dyn Fs, block_dir: &Path) {
        let meta = BlockReader::read_meta(fs, block_dir);
        self.source_ranges.extend(meta.map(|meta| meta.range()));
    }

    /// Adds what became of other samples that were found.
    pub(super) fn count(&mut self, totals: &SampleTotals) {
        self.totals.append(totals);
    }

    /// Counts the samples of a Prometheus block that cannot be opened.
    pub(super) fn lose_block(&mut self, fs: &dyn Fs, block_dir: &Path) {
        lose_block(fs, block_dir, &mut self.totals);
    }

    /// Returns `true`, and counts its result, if an earlier run has finished the next Prometheus
    /// block.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn has_finished(&mut self, block_dir: &Path) -> Result<bool> {
        if let Some(finished) = self.earlier.pop()
            && self.finished(block_dir, finished.built)? == finished
        {
            self.lines_size += finished.line()?.len() as u64;
            self.add(finished.built);
            self.count(&finished.built.totals());
            return Ok(true);
        }
        self.forget_rest()?;
        Ok(false)
    }

    /// Adds the result of an undamaged Prometheus block, which is not built again.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn finish(&mut self, block_dir: &Path, built: Built) -> Result<()> {
        let line = self.finished(block_dir, built)?.line()?;
        let written = self
            .lines
            .write_all(line.as_bytes())
            .and_then(|()| self.lines.sync_data());
        written.context("record a finished block")?;
        self.lines_size += line.len() as u64;
        self.add(built);
        Ok(())
    }

    fn finished(&self, block_dir: &Path, built: Built) -> Result<Finished> {
        let meta = block_dir.join("meta.json");
        Ok(Finished {
            program: varve_system::version::NUMBER.to_owned(),
            block: block_dir
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            meta: fs::read_to_string(&meta).with_context(|| format!("read {meta:?}"))?,
            external_labels: self.external_labels.clone(),
            built,
        })
    }

    /// Adds a result that the next run builds again: that of a damaged Prometheus block, whose
    /// damage is reported again.
    pub(super) fn add(&mut self, built: Built) {
        self.built.n_blocks += built.n_blocks;
        self.built.n_samples += built.n_samples;
        self.built.n_duplicates += built.n_duplicates;
        self.built.n_deleted += built.n_deleted;
    }

    /// Moves the blocks built from the head, which are numbered from 1, behind all others. Each run
    /// builds them again: the head may have grown.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn add_head(&mut self, built: Built) -> Result<()> {
        self.forget_rest()?;
        for number in 1..=built.n_blocks {
            let from = self.head_dir().join(block_name(number));
            let to = self
                .blocks_dir()
                .join(block_name(self.built.n_blocks + number));
            fs::rename(&from, &to).with_context(|| format!("rename {from:?} to {to:?}"))?;
        }
        let blocks_dir = self.blocks_dir();
        RealFs
            .sync_dir(&blocks_dir)
            .with_context(|| format!("sync {blocks_dir:?}"))?;
        self.add(built);
        Ok(())
    }

    /// Moves all blocks to a new directory in `import_dir`, which is created if needed, and removes
    /// the staging area. The blocks survive a power cut then. Returns the new directory, `None`
    /// without blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn hand_over(mut self, fs: &dyn Fs, import_dir: &Path) -> Result<Option<PathBuf>> {
        self.forget_rest()?;
        let mut handed_over = None;
        if self.built.n_blocks > 0 {
            create_dir_durably(fs, import_dir)?;
            let target = import_dir.join(format!(
                "{:08}",
                numbers(fs, import_dir)?.into_iter().max().unwrap_or(0) + 1
            ));
            let finished = self.dir.join("finished");
            fs::remove_file(&finished).with_context(|| format!("remove {finished:?}"))?;
            RealFs
                .sync_dir(&self.dir)
                .with_context(|| format!("sync {:?}", self.dir))?;
            fs.rename(&self.blocks_dir(), &target)
                .with_context(|| format!("rename to {target:?}"))?;
            fs.sync_dir(import_dir)
                .with_context(|| format!("sync {import_dir:?}"))?;
            handed_over = Some(target);
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("remove {:?}", self.dir))?;
        Ok(handed_over)
    }

    /// Removes the results of an earlier run that are not valid.
    fn forget_rest(&mut self) -> Result<()> {
        self.earlier.clear();
        self.lines
            .set_len(self.lines_size)
            .context("truncate the list of finished blocks")?;
        for entry in fs::read_dir(self.blocks_dir()).context("list the built blocks")? {
            let path = entry.context("list the built blocks")?.path();
            if number(&path).is_none_or(|number| number > self.built.n_blocks) {
                fs::remove_file(&path).with_context(|| format!("remove {path:?}"))?;
            }
        }
        Ok(())
    }
}

impl Finished {
    fn line(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// Returns the numbers in the names of blocks or directories.
fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<u64>> {
    let names = fs.list(dir).with_context(|| format!("list {dir:?}"))?;
    Ok(names
        .iter()
        .filter_map(|name| number(name.as_ref()))
        .collect())
}

fn block_name(number: u64) -> String {
    format!("{number:08}.block")
}

fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".block").unwrap_or(name).parse().ok()
}

#[cfg(test)]
mod tests {
    use varve_env::testing::{MemFs, PowerCut};

    use super::*;

    const TWO: Built = Built {
        n_blocks: 2,
        n_samples: 20,
        n_duplicates: 0,
        n_deleted: 0,
    };
    const ONE: Built = Built {
        n_blocks: 1,
        n_samples: 5,
        n_duplicates: 1,
        n_deleted: 2,
    };

    /// Creates Prometheus blocks that have only a description.
    fn sources(dir: &Path, names: &[&str]) -> Vec<PathBuf> {
        names
            .iter()
            .map(|name| {
                let source = dir.join(name);
                fs::create_dir_all(&source).unwrap();
                fs::write(
                    source.join("meta.json"),
                    format!("{{\"ulid\":\n \"{name}\"}}"),
                )
                .unwrap();
                source
            })
            .collect()
    }

    fn put_block(staging: &Staging, number: u64) {
        fs::write(staging.blocks_dir().join(block_name(number)), "").unwrap();
    }

    /// An import that was interrupted in the third block.
    fn interrupted(data: &Path, sources: &[PathBuf]) {
        let mut staging = Staging::open(data, &[]).unwrap();
        assert!(!staging.has_finished(&sources[0]).unwrap());
        (1..=2).for_each(|number| put_block(&staging, number));
        staging.finish(&sources[0], TWO).unwrap();
        assert!(!staging.has_finished(&sources[1]).unwrap());
        put_block(&staging, 3);
        staging.finish(&sources[1], ONE).unwrap();
        assert!(!staging.has_finished(&sources[2]).unwrap());
        put_block(&staging, 4);
        fs::write(staging.blocks_dir().join("00000005.block.tmp"), "").unwrap();
    }

    #[test]
    fn blocks_with_other_external_labels_are_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let sources = sources(dir.path(), &["a", "b", "c"]);
        interrupted(&data, &sources);
        let labels = [("cluster".to_owned(), "eu-1".to_owned())];
        let mut staging = Staging::open(&data, &labels).unwrap();
        assert!(!staging.has_finished(&sources[0]).unwrap());
        assert_eq!(staging.built(), Built::default());
    }

    #[test]
    fn finished_blocks_are_not_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let sources = sources(dir.path(), &["a", "b", "c"]);
        interrupted(&data, &sources);
        let mut staging = Staging::open(&data, &[]).unwrap();
        assert!(
            staging.has_finished(&sources[0]).unwrap()
                && staging.has_finished(&sources[1]).unwrap()
        );
        assert_eq!(
            staging.built(),
            Built {
                n_blocks: 3,
                n_samples: 25,
                n_duplicates: 1,
                n_deleted: 2,
            }
        );
        assert!(!staging.has_finished(&sources[2]).unwrap());
        let mut left = numbers(&RealFs, &staging.blocks_dir()).unwrap();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3], "what was not finished is gone");
        put_block(&staging, 4);
        staging.finish(&sources[2], ONE).unwrap();
        let import_dir = data.join("import");
        fs::create_dir_all(import_dir.join("00000007")).unwrap();
        staging.hand_over(&RealFs, &import_dir).unwrap();
        assert_eq!(
            numbers(&RealFs, &import_dir.join("00000008"))
                .unwrap()
                .len(),
            4,
            "beside what another import left there"
        );
        assert!(!data.join(NAME).exists());
    }

    #[test]
    fn blocks_of_the_head_follow_all_others_and_are_built_by_each_run() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let sources = sources(dir.path(), &["a", "b"]);
        let put_head = |staging: &Staging, contents: &str| {
            fs::create_dir_all(staging.head_dir()).unwrap();
            for number in 1..=2 {
                fs::write(staging.head_dir().join(block_name(number)), contents).unwrap();
            }
        };
        // The first run ends before it hands over.
        for contents in ["first", "second"] {
            let mut staging = Staging::open(&data, &[]).unwrap();
            let is_first = contents == "first";
            assert_eq!(staging.has_finished(&sources[0]).unwrap(), !is_first);
            if is_first {
                put_block(&staging, 1);
                staging.finish(&sources[0], ONE).unwrap();
            }
            assert!(!staging.has_finished(&sources[1]).unwrap());
            put_head(&staging, contents);
            staging.add_head(TWO).unwrap();
            assert_eq!(staging.built().n_blocks, 3);
            let of = |number| fs::read_to_string(staging.blocks_dir().join(block_name(number)));
            assert_eq!(of(1).unwrap(), "");
            assert_eq!(of(2).unwrap(), contents);
            assert_eq!(of(3).unwrap(), contents);
        }
    }

    /// The new directory `import` used to be lost.
    #[test]
    fn blocks_that_are_handed_over_survive_a_power_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::open(dir.path(), &[]).unwrap();
        let memory = MemFs::new();
        let block = staging.blocks_dir().join("00000001.block");
        create_dir_durably(&memory, &staging.blocks_dir()).unwrap();
        memory.create(&block).unwrap().sync().unwrap();
        memory.sync_dir(&staging.blocks_dir()).unwrap();
        put_block(&staging, 1);
        staging.add(ONE);
        let import_dir = dir.path().join("import");
        staging.hand_over(&memory, &import_dir).unwrap();
        let names = memory
            .crash(PowerCut::LosesAll)
            .list(&import_dir.join("00000001"))
            .unwrap();
        assert_eq!(names, ["00000001.block"]);
    }

    #[test]
    fn a_changed_block_invalidates_later_results() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let sources = sources(dir.path(), &["a", "b", "c"]);
        interrupted(&data, &sources);
        fs::write(sources[1].join("meta.json"), "after a deletion").unwrap();
        let mut staging = Staging::open(&data, &[]).unwrap();
        assert!(
            staging.has_finished(&sources[0]).unwrap()
                && !staging.has_finished(&sources[1]).unwrap()
        );
        assert_eq!(numbers(&RealFs, &staging.blocks_dir()).unwrap().len(), 2);
        drop(staging);
        let staging = Staging::open(&data, &[]).unwrap();
        assert_eq!(staging.earlier.len(), 1, "lines that do not count are gone");
        assert!(
            Staging::open(&data, &[])
                .unwrap_err()
                .to_string()
                .contains("is running")
        );
    }

    #[test]
    fn a_line_is_valid_only_if_complete_and_with_its_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let sources = sources(dir.path(), &["a", "b", "c"]);
        interrupted(&data, &sources);
        let path = data.join(NAME).join("finished");
        let block = data.join(NAME).join("blocks").join("00000001.block");
        let lines = fs::read_to_string(&path).unwrap();
        fs::write(&path, &lines[..lines.len() - 3]).unwrap();
        assert_eq!(
            Staging::open(&data, &[]).unwrap().earlier.len(),
            1,
            "one was cut"
        );
        fs::write(&path, [lines.as_bytes(), b"\xff\n"].concat()).unwrap();
        assert_eq!(
            Staging::open(&data, &[]).unwrap().earlier.len(),
            2,
            "one is damaged"
        );
        fs::remove_file(block).unwrap();
        assert!(Staging::open(&data, &[]).unwrap().earlier.is_empty());
    }
}
