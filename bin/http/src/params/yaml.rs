//! Parameters in YAML: rule files and relabel rules that a client sends.
//!
//! The YAML library knows no deadline. Its time grows with the square of the number of open
//! brackets. Its memory is a multiple of the size, or more if aliases repeat a part of the text. So
//! all three are bounded before it reads the text, and the memory is charged.

use varve_context::Charge;

use super::form::Form;
use crate::error::{ApiError, Result};

/// Maximum bytes of a parameter in YAML. All rules of kube-prometheus have some 400 KiB.
pub(crate) const YAML_SIZE_MAX: usize = 1 << 20;
/// Maximum number of `[` and `{` of a parameter in YAML, also in strings. All rules of
/// kube-prometheus have some 1,400.
pub(crate) const YAML_BRACKETS_MAX: usize = 20_000;
/// Bytes of memory per byte of text, for lists of short words.
const YAML_MEMORY: usize = 128;

impl Form {
    /// Returns the first value of a parameter in YAML, or an empty string if it is missing. Charges
    /// the memory for reading it.
    ///
    /// # Errors
    /// If it exceeds [`YAML_SIZE_MAX`] or [`YAML_BRACKETS_MAX`], has an alias, or memory is
    /// exhausted.
    pub(crate) fn yaml(&self, name: &'static str, charge: &mut Charge) -> Result<&str> {
        let text = self.first(name);
        check(name, "bytes", text.len(), YAML_SIZE_MAX)?;
        let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
        check(name, "brackets", brackets.count(), YAML_BRACKETS_MAX)?;
        if let Some(line) = text.lines().find(|line| has_alias(line)) {
            let start: String = line.trim().chars().take(40).collect();
            return Err(ApiError::invalid_parameter(
                name,
                format!("YAML aliases are not supported: {start}"),
            ));
        }
        charge.grow(text.len() * YAML_MEMORY)?;
        Ok(text)
    }
}

/// Rejects a parameter with more bytes or brackets than `max`.
fn check(name: &'static str, what: &'static str, found: usize, max: usize) -> Result<()> {
    if found <= max {
        return Ok(());
    }
    let reason = format!("YAML with {found} {what} exceeds the limit of {max}");
    Err(ApiError::invalid_parameter(name, reason).with_limit(what))
}

/// Returns `true` if a line may have an alias: `*name` where a value can begin.
fn has_alias(line: &str) -> bool {
    line.match_indices('*').any(|(star, _)| {
        let before = &line[..star];
        let after = &line[star + 1..];
        let is_name = after.starts_with(|c: char| !c.is_whitespace());
        let is_apart =
            before.is_empty() || before.ends_with(|c: char| c.is_whitespace() || "[{,".contains(c));
        let before = before.trim_end();
        is_name
            && is_apart
            && (before.is_empty() || before.ends_with(['-', '?', ':', '[', '{', ',']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_found() {
        for line in [
            "*a",
            "- *a",
            "expr: *e",
            "<<: *x",
            "[*a]",
            "{b: c,*d : e}",
            "? *k",
            "  *a",
        ] {
            assert!(has_alias(line), "{line}");
        }
        for line in [
            "expr: a * b",
            "a: b*c",
            "expr: sum(a) * on (b) c",
            "x: '.*'",
            "* on (a) b",
            "m: a-*b",
            "a: b *c",
        ] {
            assert!(!has_alias(line), "{line}");
        }
    }
}
