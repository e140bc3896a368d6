//! The kinds of records of a checkpoint, besides metadata.

pub(in crate::wal) const BEGIN: u8 = 16;
pub(in crate::wal) const SYMBOLS: u8 = 17;
pub(in crate::wal) const SERIES: u8 = 18;
pub(in crate::wal) const END: u8 = 19;
pub(in crate::wal) const EXEMPLARS: u8 = 20;
