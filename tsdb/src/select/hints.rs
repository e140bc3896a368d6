//! What a caller of a selection can do without.

/// What a selection may leave out to be faster; by default nothing. It may give more than is asked for.
#[derive(Debug, Clone, Default)]
pub struct SelectHints {
    /// Of the samples of each series in the range only the newest is asked for.
    pub only_newest: bool,
    /// Which labels are asked for. Series come in ascending order of all their labels nonetheless, and series that are told
    /// apart only by others are not joined.
    pub labels: LabelHint,
    /// Where a head or block has labels of these names, all labels are asked for.
    pub whole_where: &'static [&'static str],
}

/// The labels that a caller asks for.
#[derive(Debug, Clone, Default)]
pub enum LabelHint {
    /// All.
    #[default]
    All,
    /// Those of these names.
    With(Vec<String>),
    /// Those of other names.
    Without(Vec<String>),
}

impl LabelHint {
    /// Tells whether labels of a name are asked for.
    pub(crate) fn asks_for(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::With(names) => names.iter().any(|with| with == name),
            Self::Without(names) => names.iter().all(|without| without != name),
        }
    }
}
