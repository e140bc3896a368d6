//! The streams that a selection merges: the series of all heads, and those of each block.

use std::sync::Arc;

use varve_context::QueryContext;
use varve_model::{Labels, Matcher, TimeRange};

use super::blocks::{BlockReads, BlockStream, Ordinals};
use super::heads::HeadStream;
use super::selection::Place;
use super::series::StreamReads;
use crate::error::Result;
use crate::head::HeadCopies;
use crate::label_hint::LabelHint;

/// The selected series of all heads, with the current one, or of one block.
pub(super) enum Stream {
    Heads(Box<HeadStream>, Option<(Labels, Place)>),
    Block(Box<BlockStream>),
}

/// The streams of a selection, and access to the samples of each. Blocks come first: their samples
/// were accepted first.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) streams: Vec<Stream>,
    pub(super) reads: Vec<StreamReads>,
    /// The labels that the heads return.
    pub(super) labels_of_heads: LabelHint,
}

impl Sources {
    /// Adds the series of a block that pass all matchers, if there may be any. Only the first
    /// `n_first` are needed.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit, and errors of reading the block.
    pub(super) fn add_block(
        &mut self,
        block: BlockReads,
        matchers: &[Matcher],
        range: TimeRange,
        n_first: usize,
    ) -> Result<()> {
        let ordinals = Ordinals::new(&block, matchers, n_first)?;
        if !ordinals.is_empty() {
            let stream = BlockStream::new(block, ordinals, range);
            self.reads.push(StreamReads::Block(stream.reads()));
            self.streams.push(Stream::Block(Box::new(stream)));
        }
        Ok(())
    }

    /// Adds the series of the heads. They come after all blocks.
    pub(super) fn add_heads(&mut self, heads: HeadStream, copies: Arc<[HeadCopies]>) {
        self.reads.push(StreamReads::Heads(copies));
        self.streams.push(Stream::Heads(Box::new(heads), None));
    }
}

impl Stream {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Heads(heads, at) => heads.len() + u64::from(at.is_some()),
            Self::Block(block) => block.len(),
        }
    }

    pub(super) fn request_labels(&mut self, labels: &LabelHint) -> Result<()> {
        match self {
            Self::Heads(..) => Ok(()),
            Self::Block(block) => block.request_labels(labels),
        }
    }

    /// Advances to the next series.
    pub(super) fn advance(
        &mut self,
        ctx: &QueryContext,
        range: TimeRange,
        labels: &LabelHint,
    ) -> Result<()> {
        match self {
            Self::Heads(heads, at) => *at = heads.next(ctx, labels)?,
            Self::Block(block) => block.advance(range)?,
        }
        Ok(())
    }

    /// Returns the packed labels of the current series, or `None` after the last series.
    pub(super) fn packed(&self) -> Option<&str> {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(labels, _)| labels.as_packed()),
            Self::Block(block) => block.packed(),
        }
    }

    /// Takes the labels of the current series: an empty set after the last series. The caller
    /// advances before it calls this again.
    pub(super) fn take_labels(&mut self) -> Labels {
        match self {
            Self::Heads(_, at) => at
                .as_mut()
                .map(|(labels, _)| std::mem::take(labels))
                .unwrap_or_default(),
            Self::Block(block) => block.labels(),
        }
    }

    /// Returns the position of the current series, or `None` after the last series.
    pub(super) fn place(&self) -> Option<Place> {
        match self {
            Self::Heads(_, at) => at.as_ref().map(|(_, place)| *place),
            Self::Block(block) => block.ordinal().map(|at| Place { head: 0, at }),
        }
    }

    /// Returns `true` if any series, selected or not, may have a label of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> Result<bool> {
        match self {
            Self::Heads(heads, _) => Ok(heads.has_label(names)),
            Self::Block(block) => block.has_label(names),
        }
    }
}
