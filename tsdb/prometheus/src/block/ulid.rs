//! ULIDs, the names of blocks: 48 bits of time and 80 random bits as 26 letters and digits.

use std::fmt;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LEN: usize = 26;

/// The name of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ulid(u128);

impl Ulid {
    /// Creates a ULID from a time in milliseconds, of which 48 bits are used, and 80 bits.
    #[must_use]
    pub fn new(timestamp_ms: i64, unique: u128) -> Self {
        Self(
            u128::from(timestamp_ms.cast_unsigned() & ((1 << 48) - 1)) << 80
                | unique & ((1 << 80) - 1),
        )
    }

    /// Parses a ULID. Lower case is accepted.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut value = 0_u128;
        for byte in text.bytes() {
            let digit = DIGITS
                .iter()
                .position(|&digit| digit == byte.to_ascii_uppercase())?;
            value = value.checked_mul(32)? + digit as u128;
        }
        (text.len() == LEN).then_some(Self(value))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for i in (0..LEN).rev() {
            let digit = DIGITS[(self.0 >> (5 * i) & 31) as usize];
            write!(f, "{}", char::from(digit))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_round_trip() {
        let text = "01M7YQJC6W0PH11YAGQNK9T4Z6";
        assert_eq!(Ulid::parse(text).unwrap().to_string(), text);
        assert_eq!(Ulid::new(1, 2).to_string(), "00000000010000000000000002");
        assert!(Ulid::new(1, u128::MAX) < Ulid::new(2, 0));
        for bad in [
            "",
            "01M7YQJC6W0PH11YAGQNK9T4Z",
            "01M7YQJC6W0PH11YAGQNK9T4ZU",
            "ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
        ] {
            assert_eq!(Ulid::parse(bad), None, "{bad}");
        }
    }
}
