//! Which labels of the series a selection needs.

/// The requested labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum LabelHint {
    /// All labels.
    #[default]
    All,
    /// Labels with these names.
    With(Vec<String>),
    /// Labels with other names.
    Without(Vec<String>),
    /// No labels. The series may be in any order.
    None,
}

impl LabelHint {
    /// Returns `true` if labels with this name are requested.
    pub(crate) fn includes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::With(names) => names.iter().any(|with| with == name),
            Self::Without(names) => names.iter().all(|without| without != name),
            Self::None => false,
        }
    }
}
