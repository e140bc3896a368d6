//! The header of a histogram chunk.

/// Size of the header of a histogram chunk.
pub(super) const HEADER_SIZE: usize = 3;

/// Counter reset header: whether counters were reset before the first sample of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterResetHeader {
    Unknown = 0,
    NotReset = 0x40,
    Reset = 0x80,
    Gauge = 0xc0,
}

impl CounterResetHeader {
    /// The bits that the header occupies in its byte.
    pub(super) const MASK: u8 = 0xc0;
}
