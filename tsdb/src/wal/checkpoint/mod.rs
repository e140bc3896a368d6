//! Checkpoints: the definitions of the live series of a log, which replace the segments before its
//! position.
//!
//! A checkpoint is a file of frames like a segment ([`super::frame`]) and has the number of its
//! [position](CheckpointPosition). Its records:
//!
//! ```text
//! 16 begin     position, next ref                                          once, first
//! 17 symbols   number of the first, n, then n pairs of label name and value
//! 18 series    n, then columns of n: refs, last timestamps, numbers of labels; then the labels' symbols
//! 3  metadata  as in segments
//! 20 exemplars by series, with its labels ([`exemplars`])
//! 19 end       next ref                                                    once, last
//! ```
//! A symbol is a label name and value, numbered from 0 in the file. A symbols frame precedes the
//! first series frame that needs its symbols. Series are in the order of their refs, shard by
//! shard: a sender creates the series of a scrape target in succession. So neighboring series share
//! many symbols ([`series`]), and a replay gives them neighboring slots.
//!
//! Crash: the file is written under a temporary name, synced and renamed; then the directory is
//! synced. Only then are older checkpoints removed. Segments before the rotation are removed only
//! after this removal is durable. So for every checkpoint all segments that it needs exist.

mod exemplars;
mod load;
pub(super) mod record;
mod series;
mod symbols;
mod write;

use std::path::Path;

use varve_env::Fs;

pub(super) use load::Loader;
pub(crate) use load::{Entry, State, examine, load, name_before, other_name};
pub(super) use record::{BEGIN, END, EXEMPLARS, SERIES, SYMBOLS};
pub(crate) use series::CheckpointSeries;
pub(crate) use symbols::Texts;
pub(crate) use write::CheckpointWriter;
pub(super) use write::write;

use super::file_name::{CheckpointPosition, SegmentKind};
use crate::error::Result;

/// Where the replay of a log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayStart {
    /// Number of the checkpoint to load, if any.
    pub(crate) checkpoint: Option<u64>,
    /// Number of the first segments that the checkpoint does not supersede.
    pub(crate) first_segment: u64,
}

/// Chooses where the replay of a log begins. `numbers` are those of its checkpoints, ascending;
/// `state_of` is called from the newest one on, until one is valid.
///
/// The segments after the newest valid checkpoint exist, even if a damaged one is newer. If none is
/// valid, the valid frames of the newest one that has begun are loaded, else those of the newest
/// one, which then supersedes no segment.
///
/// # Errors
/// Those of `state_of`.
pub(crate) fn choose(
    numbers: &[u64],
    mut state_of: impl FnMut(u64) -> Result<State>,
) -> Result<ReplayStart> {
    let mut begun = None;
    for &number in numbers.iter().rev() {
        match state_of(number)? {
            State::Valid => {
                return Ok(ReplayStart {
                    checkpoint: Some(number),
                    first_segment: number,
                });
            }
            State::Begun => begun = begun.or(Some(number)),
            State::Unmarked => {}
        }
    }
    Ok(ReplayStart {
        checkpoint: begun.or(numbers.last().copied()),
        first_segment: begun.unwrap_or(0),
    })
}

/// Removes the files that a durable checkpoint replaces. If a file cannot be removed, replay
/// ignores it, and the next checkpoint retries.
pub(super) fn remove_before(fs: &dyn Fs, dir: &Path, position: CheckpointPosition) {
    let removed = remove_checkpoints(fs, dir, position).and_then(|()| {
        for kind in [SegmentKind::Samples, SegmentKind::Series] {
            remove_files(fs, dir, |name| {
                let number = kind.parse(name).or_else(|| kind.parse_tmp(name));
                number.is_some_and(|number| number < position.0)
            })?;
        }
        Ok(())
    });
    if let Err(error) = removed {
        tracing::warn!(?dir, %error, "could not remove WAL files that a checkpoint replaces");
    }
}

/// Removes older checkpoints durably: if a checkpoint reappeared after a power cut, its segments
/// might be missing.
fn remove_checkpoints(
    fs: &dyn Fs,
    dir: &Path,
    position: CheckpointPosition,
) -> std::io::Result<()> {
    remove_files(fs, dir, |name| {
        SegmentKind::Checkpoint
            .parse(name)
            .is_some_and(|number| number < position.0)
    })?;
    fs.sync_dir(dir)
}

fn remove_files(fs: &dyn Fs, dir: &Path, which: impl Fn(&str) -> bool) -> std::io::Result<()> {
    for name in fs.list(dir)? {
        if which(&name) {
            fs.remove(&dir.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
