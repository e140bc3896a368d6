//! The result of a check.

/// The result of a check; the larger one counts for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Valid,
    /// Lint errors only.
    Lint,
    Invalid,
}
