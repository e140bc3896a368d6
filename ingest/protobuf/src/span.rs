//! [`Span`]: a part of a message.

/// A byte range of a message, end excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// Creates a span of a message.
    ///
    /// # Panics
    /// If the message has more than `u32::MAX` bytes.
    #[inline]
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let position = |at: usize| u32::try_from(at).expect("a message has at most u32::MAX bytes");
        Self {
            start: position(start),
            end: position(end),
        }
    }

    /// Returns the bytes of the span.
    ///
    /// # Panics
    /// If the span lies outside of the message.
    #[inline]
    #[must_use]
    pub fn slice(self, message: &[u8]) -> &[u8] {
        &message[self.start as usize..self.end as usize]
    }

    /// Returns the number of bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns `true` if the span has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}
