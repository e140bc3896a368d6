//! Limits of one execution.

/// Maximum size of the output in bytes.
pub const OUTPUT_SIZE_MAX: usize = 1 << 20;
/// Maximum size of all values that one execution creates, in bytes.
pub const SIZE_MAX: usize = 16 << 20;
/// Maximum number of actions, function calls and iterations of one execution.
pub const STEPS_MAX: usize = 1_000_000;
/// Maximum depth of actions, pipelines and templates within each other.
pub const DEPTH_MAX: usize = 400;
