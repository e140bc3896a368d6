//! The start of a text that may be long, for errors, logs and lists.

/// Bytes of an invalid text that an error quotes.
pub const QUOTED_SIZE_MAX: usize = 256;

/// Returns the start of a text, for quoting it in an error.
pub fn quotable(text: &str) -> &str {
    truncate(text, QUOTED_SIZE_MAX)
}

/// Returns the start of `text`, at most `size_max` bytes of whole characters.
pub fn truncate(text: &str, size_max: usize) -> &str {
    &text[..text.floor_char_boundary(size_max)]
}
