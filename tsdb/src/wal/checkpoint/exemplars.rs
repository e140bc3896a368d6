//! The exemplars of a checkpoint, by series. Each group contains the labels, as the series may have
//! been evicted from the head.
//!
//! ```text
//! repeated:
//!   labels     number, then name and value of each in ascending order of names
//!   varint     n, then n times an id and an exemplar (`record::exemplars`)
//! ```

use varve_codec::varint::{put_u64, take_u64};
use varve_model::labels::LABELS_SIZE_MAX;
use varve_model::{Exemplar, Labels};

use crate::batch::NumberedExemplars;
use crate::wal::record::{put_exemplar, put_labels, take_exemplar, take_string};

/// Maximum exemplars per group, so that frames stay small.
pub(super) const GROUP_MAX: usize = 256;

/// Appends at most [`GROUP_MAX`] exemplars of a series.
pub(super) fn encode(dst: &mut Vec<u8>, labels: &Labels, exemplars: &[(u64, Exemplar)]) {
    debug_assert!(exemplars.len() <= GROUP_MAX, "the caller splits them");
    put_labels(dst, labels);
    put_u64(dst, exemplars.len() as u64);
    for (id, exemplar) in exemplars {
        put_u64(dst, *id);
        put_exemplar(dst, exemplar);
    }
}

/// Decodes exemplars series by series. Returns `None` if the record is damaged.
pub(super) fn decode(mut src: &[u8], mut each: impl FnMut(NumberedExemplars)) -> Option<()> {
    while !src.is_empty() {
        let labels = take_labels(&mut src)?;
        let n = usize::try_from(take_u64(&mut src)?)
            .ok()
            .filter(|&n| n <= GROUP_MAX)?;
        let exemplars = (0..n)
            .map(|_| Some((take_u64(&mut src)?, take_exemplar(&mut src)?)))
            .collect::<Option<_>>()?;
        each((labels, exemplars));
    }
    Some(())
}

fn take_labels(src: &mut &[u8]) -> Option<Labels> {
    let mut pairs = Vec::new();
    for _ in 0..take_u64(src)? {
        pairs.push((take_string(src)?, take_string(src)?));
    }
    let size: usize = pairs
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if size > LABELS_SIZE_MAX {
        None
    } else {
        Labels::from_unsorted(&mut pairs).ok()
    }
}
