//! The bytes of a file: the present contents, and what a power cut leaves of them.

use std::io;
use std::ops::Range;

use super::faults::broken;
use super::power_cut::{PowerCut, Rng};

/// The bytes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Contents {
    /// The present contents.
    data: Vec<u8>,
    /// The contents at the last successful sync.
    synced: Vec<u8>,
    /// Ranges of `synced` that were part of a failed sync first: they may be missing after all.
    doubtful: Vec<Range<usize>>,
    /// The writes between `synced` and `data`, in order.
    writes: Vec<Write>,
    /// Unreadable ranges.
    bad: Vec<Range<u64>>,
}

#[derive(Debug, Clone)]
enum Write {
    Append {
        bytes: Vec<u8>,
        /// A sync has failed since.
        doubtful: bool,
    },
    /// Truncates the file, or extends it with zeros.
    Resize(usize),
}

impl Contents {
    /// A file whose contents survive a power cut.
    pub(super) fn lasting(data: Vec<u8>, bad: Vec<Range<u64>>) -> Self {
        Self {
            synced: data.clone(),
            data,
            bad,
            ..Self::default()
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn size(&self) -> u64 {
        self.data.len() as u64
    }

    pub(super) fn bad(&self) -> &[Range<u64>] {
        &self.bad
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.writes.push(Write::Append {
            bytes: bytes.to_vec(),
            doubtful: false,
        });
    }

    pub(super) fn resize(&mut self, size: usize) {
        self.data.resize(size, 0);
        self.writes.push(Write::Resize(size));
    }

    pub(super) fn sync(&mut self) {
        for write in std::mem::take(&mut self.writes) {
            let doubtful = matches!(write, Write::Append { doubtful: true, .. });
            let written = write.apply(&mut self.synced);
            clip(&mut self.doubtful, self.synced.len());
            if doubtful {
                self.doubtful.extend(written);
            }
        }
    }

    pub(super) fn fail_sync(&mut self) {
        for write in &mut self.writes {
            if let Write::Append { doubtful, .. } = write {
                *doubtful = true;
            }
        }
    }

    pub(super) fn set_bad(&mut self, range: Range<u64>) {
        self.bad.push(range);
    }

    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut Vec<u8>)) {
        edit(&mut self.data);
        *self = Self::lasting(
            std::mem::take(&mut self.data),
            std::mem::take(&mut self.bad),
        );
    }

    /// Fails if a byte of the range is on a bad sector.
    pub(super) fn check_readable(&self, range: Range<u64>) -> io::Result<()> {
        let hit = self
            .bad
            .iter()
            .any(|bad| bad.start < range.end && range.start < bad.end);
        if hit { Err(broken()) } else { Ok(()) }
    }

    /// Returns the contents after a power cut.
    pub(super) fn survivor(&self, cut: PowerCut, rng: &mut Rng) -> Vec<u8> {
        let mut data = self.synced.clone();
        let mut unsure = self.doubtful.clone();
        match cut {
            PowerCut::KeepsAll => data.clone_from(&self.data),
            PowerCut::LosesAll => unsure.into_iter().for_each(|range| data[range].fill(0)),
            PowerCut::Seeded(_) => {
                self.keep_some_writes(&mut data, &mut unsure, rng);
                self.lose_pieces(&mut data, &unsure, rng);
            }
        }
        data
    }

    /// Applies some of the first writes, and a prefix of the next one.
    fn keep_some_writes(&self, data: &mut Vec<u8>, unsure: &mut Vec<Range<usize>>, rng: &mut Rng) {
        let n_kept = rng.share_of(self.writes.len());
        let cut_write = self.writes.get(n_kept).and_then(|write| write.cut(rng));
        for write in self.writes[..n_kept].iter().chain(&cut_write) {
            let written = write.apply(data);
            clip(unsure, data.len());
            unsure.extend(written);
        }
    }

    /// Loses some of the unsynced pieces: each becomes zeros, or the contents at the last sync.
    fn lose_pieces(&self, data: &mut [u8], unsure: &[Range<usize>], rng: &mut Rng) {
        if rng.one_in(2) {
            return;
        }
        let piece_size = if rng.one_in(2) { 512 } else { 4096 };
        for range in unsure {
            for piece in range.start / piece_size..range.end.div_ceil(piece_size) {
                let lost =
                    range.start.max(piece * piece_size)..range.end.min((piece + 1) * piece_size);
                match rng.below(4) {
                    0 => data[lost].fill(0),
                    1 => data[lost.clone()]
                        .iter_mut()
                        .zip(lost)
                        .for_each(|(byte, at)| {
                            *byte = self.synced.get(at).copied().unwrap_or(0);
                        }),
                    _ => {}
                }
            }
        }
    }
}

impl Write {
    /// Changes the contents and returns the range of new bytes.
    fn apply(&self, data: &mut Vec<u8>) -> Option<Range<usize>> {
        match self {
            Self::Append { bytes, .. } => {
                data.extend_from_slice(bytes);
                Some(data.len() - bytes.len()..data.len())
            }
            Self::Resize(size) => {
                data.resize(*size, 0);
                None
            }
        }
    }

    /// Returns a prefix of an append.
    fn cut(&self, rng: &mut Rng) -> Option<Self> {
        match self {
            Self::Append { bytes, doubtful } => Some(Self::Append {
                bytes: bytes[..rng.share_of(bytes.len())].to_vec(),
                doubtful: *doubtful,
            }),
            Self::Resize(_) => None,
        }
    }
}

/// Clips ranges to the size of the file.
fn clip(ranges: &mut Vec<Range<usize>>, size: usize) {
    for range in ranges.iter_mut() {
        range.end = range.end.min(size);
    }
    ranges.retain(|range| range.start < range.end);
}
