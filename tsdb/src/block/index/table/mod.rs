//! Tables: numbered entries in pages, and a directory that finds the page of a number.
//!
//! ```text
//! page        entries, one after the other
//!             restart points, u32 each: where in the page every `restart_interval`-th entry begins
//!             number of entries, u32
//! directory   per page: number of its first entry (varint, less that of the page before), reference, key (size
//!             varint, bytes)
//! ```
//! Each table defines the meaning of its entries and keys. The entry at a restart point does not
//! refer to entries before it, so that reading one entry costs half an interval on average, not
//! half a page.

mod cursor;
mod directory;
mod writer;

pub(super) use cursor::TableCursor;
pub(super) use directory::Table;
pub(super) use writer::TableWriter;

/// Size at which a page is closed. Larger pages compress a little better, but reading one entry
/// costs more.
pub(super) const PAGE_SIZE: usize = 16 << 10;
