//! Holding blocks: if many become too old at once, their removal waits for a confirmation.
//!
//! Used by [`Retention`](super::Retention) for whole blocks, and by the retention rules.

use crate::block::BlockMeta;

/// Maximum number of blocks that get too old at once without a confirmation. In a store with few
/// blocks it is a quarter of them, but at least one.
const TOO_OLD_MAX: usize = 4;

/// Which blocks that are too old are held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hold {
    /// Those that were held before, and all of them if more than [`TOO_OLD_MAX`] others are too
    /// old.
    Unconfirmed {
        /// [`Expired::held_ms`](super::Expired::held_ms) of the last round.
        held_ms: Option<i64>,
    },
    /// None: their removal is confirmed.
    Confirmed,
}

impl Hold {
    /// Returns the time up to which blocks are held. `None` if no block is. Only blocks for which
    /// `may_expire` returns `true` can be too old.
    pub(super) fn held_ms(
        self,
        blocks: &[BlockMeta],
        too_old_ms: Option<i64>,
        may_expire: impl Fn(&BlockMeta) -> bool,
    ) -> Option<i64> {
        let Self::Unconfirmed { held_ms } = self else {
            return None;
        };
        // The clock may have been corrected.
        let held_ms = held_ms.min(too_old_ms);
        let others = blocks.iter().filter(|block| !ends_by(block, held_ms));
        let n_too_old = others
            .clone()
            .filter(|block| may_expire(block) && ends_by(block, too_old_ms))
            .count();
        if n_too_old > (others.count() / 4).clamp(1, TOO_OLD_MAX) {
            too_old_ms
        } else {
            held_ms
        }
    }
}

/// Returns `true` if a block has no sample after a time. Returns `false` without a time.
pub(crate) fn ends_by(block: &BlockMeta, time_ms: Option<i64>) -> bool {
    time_ms.is_some_and(|time_ms| block.range.end_ms <= time_ms)
}
