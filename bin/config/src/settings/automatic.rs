//! Flags in which 0 means that Varve chooses the value.

/// Returns the value of a flag, or `default()` if it is 0.
pub(super) fn or_default(given: usize, default: impl FnOnce() -> usize) -> usize {
    if given == 0 { default() } else { given }
}
