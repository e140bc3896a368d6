//! Limits of the language, which no setting exceeds.

/// Maximum size of a query in bytes.
pub const QUERY_SIZE_MAX: usize = 1 << 20;

/// Maximum nesting depth: parentheses, arguments, subqueries, right sides of operators.
pub const DEPTH_MAX: usize = 1024;

/// Maximum number of operators in a chain such as `a + b + c`.
pub const CHAIN_LEN_MAX: usize = 1 << 14;

/// Maximum number of operators, calls and numbers in a duration expression.
pub const DURATION_LEN_MAX: usize = 256;
