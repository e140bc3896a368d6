//! Parameters in YAML: rule files and relabel rules that a client sends.
//!
//! They are read as [`CanonicalYaml`](varve_rules::file::CanonicalYaml), which bounds their depth.
//! Here their size is bounded, and the memory that they take is charged.

use varve_context::Charge;

use super::form::Form;
use crate::error::{ApiError, Result};

/// Maximum bytes of a parameter in YAML. All rules of kube-prometheus have some 400 KiB.
pub(crate) const YAML_SIZE_MAX: usize = 1 << 20;
/// Bytes of memory per byte of text, for lists of short words.
const YAML_MEMORY: usize = 128;

impl Form {
    /// Returns the first value of a parameter in YAML, or an empty string if it is missing. Charges
    /// the memory for reading it.
    ///
    /// # Errors
    /// If it exceeds [`YAML_SIZE_MAX`], or memory is exhausted.
    pub(crate) fn yaml(&self, name: &'static str, charge: &mut Charge) -> Result<&str> {
        let text = self.first(name);
        if text.len() > YAML_SIZE_MAX {
            let size = text.len();
            let reason = format!("YAML with {size} bytes exceeds the limit of {YAML_SIZE_MAX}");
            return Err(ApiError::invalid_parameter(name, reason).with_limit("bytes"));
        }
        charge.grow(text.len() * YAML_MEMORY)?;
        Ok(text)
    }
}
