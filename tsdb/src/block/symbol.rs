//! Symbols: the numbers of the labels of a block.

/// A label name and value in one block. Symbols ascend with names and values in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Symbol(pub(crate) u32);
