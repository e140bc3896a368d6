//! Recorded samples, as blocks that the server imports.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use varve_advise::counted;
use varve_model::{Labels, Sample};
use varve_prometheus::block::BlockMeta;

use super::server::Server;
use crate::tsdb::{Samples, stage_blocks, write_block};

/// Maximum memory of samples and labels that are not written yet, in bytes, but for those of the
/// last series added.
pub(super) const SIZE_MAX: usize = 256 << 20;
/// Memory of a series in the map, which may be half empty.
const SERIES_SIZE: usize = 2 * size_of::<(Labels, Samples)>();
/// Blocks that become too old within this time are not imported: an import of several blocks fails
/// if one is too old.
const IMPORT_MS_MAX: i64 = 60_000;

/// Recorded samples: those of one window in memory, the others in blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    dir: PathBuf,
    written: Vec<BlockMeta>,
    series: HashMap<Labels, Samples>,
    /// Memory of `series` in bytes.
    size: usize,
    size_max: usize,
}

impl Blocks {
    /// Creates the directory `dir` for blocks.
    pub(super) fn create(dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir).with_context(|| format!("create {dir:?}"))?;
        Ok(Self {
            dir,
            written: Vec::new(),
            series: HashMap::new(),
            size: 0,
            size_max: SIZE_MAX,
        })
    }

    /// Adds samples of a window.
    pub(super) fn add(&mut self, labels: Labels, samples: Vec<Sample>) -> Result<()> {
        if samples.is_empty() {
            return Ok(());
        }
        let labels_size = labels.size();
        let floats = match self.series.entry(labels) {
            Entry::Occupied(series) => &mut series.into_mut().floats,
            Entry::Vacant(series) => {
                self.size += SERIES_SIZE + labels_size;
                &mut series.insert(Samples::default()).floats
            }
        };
        let capacity = floats.capacity();
        floats.extend(samples);
        self.size += (floats.capacity() - capacity) * size_of::<Sample>();
        if self.size > self.size_max {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the samples in memory.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.series.is_empty() {
            return Ok(());
        }
        self.size = 0;
        let series = std::mem::take(&mut self.series);
        let name = format!("backfill-{}", self.written.len());
        let (meta, _n_repeated) = write_block(&self.dir, &name, series)?;
        self.written.push(meta);
        Ok(())
    }

    /// Lets the server import all samples. If it rejects the blocks, they are removed.
    pub(super) fn import(mut self, server: &mut Server) -> Result<()> {
        self.flush()?;
        self.remove_expired(server)?;
        if !self.written.is_empty() {
            import(&self.dir, server)?;
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("remove {:?}", self.dir))
    }

    /// Removes blocks that the retention has overtaken since the start of the backfill.
    fn remove_expired(&mut self, server: &mut Server) -> Result<()> {
        let Some(max_ms) = self.written.iter().map(|meta| meta.max_ms).max() else {
            return Ok(());
        };
        let kept_from_ms = server.kept_from_ms(max_ms)?.saturating_add(IMPORT_MS_MAX);
        let n_written = self.written.len();
        let mut removed = Vec::new();
        self.written.retain(|meta| {
            let is_kept = meta.max_ms > kept_from_ms;
            if !is_kept {
                removed.push(self.dir.join(meta.ulid.to_string()));
            }
            is_kept
        });
        for block in &removed {
            fs::remove_dir_all(block).with_context(|| format!("remove {block:?}"))?;
        }
        if !removed.is_empty() {
            eprintln!(
                "left out the first {} of {n_written}: the retention would remove them by now",
                counted(removed.len(), "block")
            );
        }
        Ok(())
    }
}

/// Lets the server import the blocks of a directory.
fn import(blocks: &Path, server: &mut Server) -> Result<()> {
    let staged = stage_blocks(blocks, &server.data_dir)?;
    let response = server.import().with_context(|| {
        format!(
            "the server has not answered, and may or may not have imported the blocks in {:?}: run the \
             command again, which imports what is left",
            server.import_dir()
        )
    })?;
    let imported = server.client.data("the import", &response).map(drop);
    let Some(staged) = staged else {
        return imported;
    };
    // Another import may have taken the blocks.
    let failure = match imported {
        Ok(()) if n_blocks(&staged)? == 0 => return Ok(()),
        Ok(()) => anyhow!(
            "the server has not imported the blocks in {staged:?}: {:?} is not its data directory",
            server.data_dir
        ),
        Err(error) => error,
    };
    match fs::remove_dir_all(&staged) {
        Ok(()) => Err(failure),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(failure),
        Err(error) => bail!("{failure:#}; remove {staged:?}, which could not be removed: {error}"),
    }
}

/// Returns the number of blocks of the store in a directory. It is 0 if there is no such directory.
fn n_blocks(dir: &Path) -> Result<usize> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries.with_context(|| format!("list {dir:?}"))?,
    };
    let mut n_blocks = 0;
    for entry in entries {
        let path = entry.with_context(|| format!("list {dir:?}"))?.path();
        n_blocks += usize::from(path.extension().is_some_and(|suffix| suffix == "block"));
    }
    Ok(n_blocks)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Answer, serve};
    use super::*;
    use std::time::Duration;

    /// Imports one sample into `data_dir`, with a server that sends this response.
    fn import_one(data_dir: &Path, answer: Answer) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let mut blocks = Blocks::create(dir.path().join("blocks")).unwrap();
        let labels = Labels::from_pairs([("__name__", "a")]).unwrap();
        let sample = Sample {
            timestamp_ms: 1,
            value: 1.0,
        };
        blocks.add(labels, vec![sample]).unwrap();
        let mut server = Server {
            client: serve(vec![answer]),
            data_dir: data_dir.to_owned(),
            retention: Duration::ZERO,
        };
        blocks.import(&mut server)
    }

    /// They used to remain, and each repetition imported them first.
    #[test]
    fn blocks_that_the_server_does_not_import_are_removed() {
        let data_dir = tempfile::tempdir().unwrap();
        let rejected = r#"{"status":"error","errorType":"execution","error":"too old"}"#;
        let nothing = r#"{"status":"success","data":{"blocks":0}}"#;
        for (status, body, expect) in [
            ("422 Unprocessable Entity", rejected, "too old"),
            ("200 OK", nothing, "is not its data directory"),
        ] {
            let imported = import_one(data_dir.path(), Answer::new(status, body));
            let error = format!("{:#}", imported.unwrap_err());
            assert!(error.contains(expect), "{error}");
            let left: Vec<_> = fs::read_dir(data_dir.path().join("import"))
                .unwrap()
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    /// The import of an operator may have taken them. It used to be an error.
    #[test]
    fn blocks_that_another_import_takes_are_imported() {
        let data_dir = tempfile::tempdir().unwrap();
        let import_dir = data_dir.path().join("import");
        let nothing = r#"{"status":"success","data":{"blocks":0}}"#;
        let answer = Answer {
            action: Box::new(move || fs::remove_dir_all(import_dir).unwrap()),
            ..Answer::new("200 OK", nothing)
        };
        import_one(data_dir.path(), answer).unwrap();
    }

    /// Only the samples used to count.
    #[test]
    fn labels_and_samples_in_memory_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut blocks = Blocks::create(dir.path().join("blocks")).unwrap();
        blocks.size_max = 1 << 20;
        let sample = Sample {
            timestamp_ms: 1,
            value: 1.0,
        };
        for i in 0..100 {
            let value = format!("{i:010}").repeat(10_000);
            let labels = Labels::from_pairs([("__name__", "a"), ("b", &*value)]).unwrap();
            blocks.add(labels, vec![sample]).unwrap();
            assert!(blocks.size <= blocks.size_max);
        }
        // 100 kB each.
        assert_eq!(blocks.written.len(), 9);
        let n_series: u64 = blocks.written.iter().map(|meta| meta.stats.n_series).sum();
        assert_eq!(n_series as usize + blocks.series.len(), 100);
    }
}
