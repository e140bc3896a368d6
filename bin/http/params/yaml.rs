//! Parameters in YAML: rule files and relabel rules that a client sends.
//!
//! The YAML library knows no deadline. Its time grows with the square of the depth, and its memory is a multiple of the
//! size. So both are bounded before it reads the text, and the memory is charged.

use varve_tsdb::context::Charge;

use super::Form;
use crate::http::error::ApiError;

/// Maximum bytes of a parameter in YAML. All rules of kube-prometheus have some 400 KiB.
pub(crate) const YAML_SIZE_MAX: usize = 1 << 20;
/// Maximum depth of a parameter in YAML. Rule files have a depth below 10.
pub(crate) const YAML_DEPTH_MAX: usize = 500;
/// Bytes of memory per byte of text, for lists of short words.
const YAML_MEMORY: usize = 128;

impl Form {
    /// Returns the first value of a parameter in YAML, or an empty string if it is missing. Charges the memory for
    /// reading it.
    ///
    /// # Errors
    /// If it exceeds [`YAML_SIZE_MAX`] or [`YAML_DEPTH_MAX`], or memory is exhausted.
    pub(crate) fn yaml(&self, name: &'static str, charge: &mut Charge) -> Result<&str, ApiError> {
        let text = self.first(name);
        let check = |what: &'static str, found: usize, max: usize| {
            if found <= max {
                return Ok(());
            }
            let reason = format!("YAML with a {what} of {found} exceeds the limit of {max}");
            Err(ApiError::invalid_parameter(name, reason).with_limit(what))
        };
        check("size", text.len(), YAML_SIZE_MAX)?;
        check("depth", depth(text), YAML_DEPTH_MAX)?;
        charge.grow(text.len() * YAML_MEMORY)?;
        Ok(text)
    }
}

/// Returns an upper bound for the depth of a YAML text without anchors: the brackets that are open at once, and the
/// indicators of sequences and mappings on one line. Brackets in strings count too. They are closed in PromQL and in
/// templates.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for line in text.lines() {
        let is_indicator = |word: &&str| matches!(*word, "-" | "?") || word.ends_with(':');
        let n_indicators = line.split_ascii_whitespace().filter(is_indicator).count();
        deepest = deepest.max(open + n_indicators);
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => open += 1,
                b']' | b'}' => open = open.saturating_sub(1),
                _ => continue,
            }
            deepest = deepest.max(open);
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_an_upper_bound() {
        for (text, expect) in [
            ("", 0),
            ("- a\n- b: [c, {d: e}]", 3),
            ("a: [[[[", 4),
            ("- - - ? x", 4),
            ("[\n[\n- - ]", 4),
            ("expr: rate(a{b=\"c\"}[5m])\n".repeat(9).as_str(), 1),
        ] {
            assert_eq!(depth(text), expect, "{text}");
        }
    }
}
