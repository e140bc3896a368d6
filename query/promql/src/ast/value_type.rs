//! The types of expression values.

/// The type of the value of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// One number per step.
    Scalar,
    /// One sample per series and step.
    Vector,
    /// A range of samples per series.
    Matrix,
    /// A string.
    String,
}

impl ValueType {
    /// Returns the type's name in the HTTP API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
            Self::String => "string",
        }
    }

    /// Returns the type's name in the documentation and in error messages.
    #[must_use]
    pub const fn documented(self) -> &'static str {
        match self {
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            _ => self.as_str(),
        }
    }
}
