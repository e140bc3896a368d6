//! Numbers with a noun.

use std::fmt::Display;

/// Returns a number with its noun: `1 sample`, `2 samples`.
pub fn counted(n: impl Copy + Display + TryInto<u64>, noun: &str) -> String {
    let plural = if matches!(n.try_into(), Ok(1)) {
        ""
    } else {
        "s"
    };
    format!("{n} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_in_the_singular() {
        assert_eq!(counted(0_u64, "sample"), "0 samples");
        assert_eq!(counted(1_usize, "sample"), "1 sample");
        assert_eq!(counted(-1_i64, "sample"), "-1 samples");
    }
}
