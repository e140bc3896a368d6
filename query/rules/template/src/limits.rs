//! Limits of one execution.

/// Maximum size of the output in bytes.
pub const OUTPUT_SIZE_MAX: usize = 1 << 20;
/// Maximum size of all values that one execution creates, in bytes.
pub const SIZE_MAX: usize = 16 << 20;
/// Maximum number of steps of one execution: actions, function calls, iterations, and
/// [`BYTES_PER_STEP`] of the texts that a function reads or returns.
pub const STEPS_MAX: usize = 1_000_000;
/// Bytes of text that count as a step.
pub(crate) const BYTES_PER_STEP: usize = 256;
/// Maximum depth of actions, pipelines, templates and values of `args` within each other.
pub const DEPTH_MAX: usize = 400;
/// Maximum size of an error in bytes. It becomes the text of a label or annotation.
pub const ERROR_SIZE_MAX: usize = 16 << 10;
