//! The version of the block format, and what a reader does with payloads of a later one.

use varve_codec::varint::take_byte;

use crate::error::Damaged;

/// The version of the format: of new blocks, and the newest that can be read.
pub(crate) const VERSION: u8 = 1;

/// The reason why the payload of a page with a correct checksum cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The payload does not decode, or contradicts the page that refers to it.
    Damaged,
    /// The payload has flags or row kinds of a later version of the format.
    Newer,
}

impl From<Damaged> for Unreadable {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

/// Takes the byte of flags from the front of a payload. A flag that is not in `known` belongs to a
/// later version.
pub(crate) fn take_flags(src: &mut &[u8], known: u8) -> Result<u8, Unreadable> {
    let flags = take_byte(src).ok_or(Damaged)?;
    if flags & !known == 0 {
        Ok(flags)
    } else {
        Err(Unreadable::Newer)
    }
}
