//! The exemplars of a checkpoint, by series, whose labels they carry: a series may have left the head.
//!
//! ```text
//! repeated:
//!   labels     number, then name and value of each in ascending order of names
//!   varint     n, then n times a number and an exemplar ([`crate::wal::exemplars`])
//! ```

use crate::chunk::varint::{put_u64, take_u64};
use crate::labels::{LABELS_SIZE_MAX, Labels};
use crate::sample::exemplar::{Exemplar, NumberedExemplars};
use crate::wal::exemplars::{put_exemplar, take_exemplar};
use crate::wal::record::{put_text, take_text};

/// Most exemplars that stand behind one label set, so that a frame stays small.
pub(super) const GROUP_MAX: usize = 256;

/// Appends exemplars of a series, at most [`GROUP_MAX`].
pub(super) fn encode(dst: &mut Vec<u8>, labels: &Labels, exemplars: &[(u64, Exemplar)]) {
    debug_assert!(exemplars.len() <= GROUP_MAX, "the caller splits them");
    put_u64(dst, labels.len() as u64);
    for (name, value) in labels {
        put_text(dst, name);
        put_text(dst, value);
    }
    put_u64(dst, exemplars.len() as u64);
    for (number, exemplar) in exemplars {
        put_u64(dst, *number);
        put_exemplar(dst, exemplar);
    }
}

/// Decodes exemplars series by series; `None` if the record is damaged.
pub(super) fn decode(mut src: &[u8], mut each: impl FnMut(NumberedExemplars)) -> Option<()> {
    while !src.is_empty() {
        let labels = take_labels(&mut src)?;
        let n = usize::try_from(take_u64(&mut src)?).ok().filter(|&n| n <= GROUP_MAX)?;
        let exemplars = (0..n).map(|_| Some((take_u64(&mut src)?, take_exemplar(&mut src)?))).collect::<Option<_>>()?;
        each((labels, exemplars));
    }
    Some(())
}

fn take_labels(src: &mut &[u8]) -> Option<Labels> {
    let mut pairs = Vec::new();
    for _ in 0..take_u64(src)? {
        pairs.push((take_text(src)?, take_text(src)?));
    }
    let size: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > LABELS_SIZE_MAX { None } else { Labels::from_unsorted(&mut pairs).ok() }
}
