//! Checkpoints: the definitions of a shard's live series, in place of the segments before a cut.
//!
//! A checkpoint is a file of frames like a segment ([`super::frame`]), named after its cut. Its records:
//!
//! ```text
//! 16 begin     cut, next ref                                               once, first
//! 17 symbols   number of the first, n, then n pairs of label name and value
//! 18 series    n, then columns of n: refs, last times, numbers of labels; then the labels' symbols
//! 3  metadata  as in segments
//! 20 exemplars by series, with its labels ([`exemplars`])
//! 19 end       next ref                                                    once, last
//! ```
//! A symbol is a label name and value, numbered from 0 over the file; a symbols frame comes before the first series frame
//! that needs it. Series come by their numbers, shard after shard: senders write those of a target one after the other, so
//! the symbols of neighbours resemble each other ([`series`]), and a replay finds neighbours side by side.
//!
//! Crash: written under a temporary name, synced, renamed, the folder synced; only then do older checkpoints go, and only
//! when that is durable the segments before the cut. So a checkpoint that is there has all segments that it needs.

mod exemplars;
mod load;
mod series;
mod symbols;
mod write;

use std::path::Path;

pub(super) use load::{Entry, Loader, examine, load};
pub(super) use series::Described;
pub(super) use write::write;

use super::{Cut, SegmentKind};
use crate::fs::Fs;

pub(super) const BEGIN: u8 = 16;
pub(super) const SYMBOLS: u8 = 17;
pub(super) const SERIES: u8 = 18;
pub(super) const END: u8 = 19;
pub(super) const EXEMPLARS: u8 = 20;

/// What the name of a checkpoint ends with while it is being written.
pub(super) const TMP_SUFFIX: &str = ".tmp";

/// Removes what a durable checkpoint replaces. What cannot be removed is passed over by replay and tried again next time.
pub(super) fn remove_before(fs: &dyn Fs, dir: &Path, cut: Cut) {
    let removed = remove_checkpoints(fs, dir, cut).and_then(|()| {
        for kind in [SegmentKind::Samples, SegmentKind::Series] {
            remove_files(fs, dir, |name| kind.parse(name).is_some_and(|number| number < cut.0))?;
        }
        Ok(())
    });
    if let Err(error) = removed {
        tracing::warn!(?dir, %error, "could not remove what a checkpoint replaces");
    }
}

/// Removes older checkpoints for good: if one came back after a power cut, its segments might not.
fn remove_checkpoints(fs: &dyn Fs, dir: &Path, cut: Cut) -> std::io::Result<()> {
    let older = |name: &str| SegmentKind::Checkpoint.parse(name).is_some_and(|number| number < cut.0);
    remove_files(fs, dir, older)?;
    fs.sync_dir(dir)
}

fn remove_files(fs: &dyn Fs, dir: &Path, which: impl Fn(&str) -> bool) -> std::io::Result<()> {
    fs.list(dir)?.iter().filter(|name| which(name)).try_for_each(|name| fs.remove(&dir.join(name)))
}

#[cfg(test)]
mod tests;
