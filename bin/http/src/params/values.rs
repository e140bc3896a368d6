//! Booleans and integers, as Go parses them.

use std::num::{IntErrorKind, ParseIntError};

use varve_system::excerpt::quotable;

/// Parses a boolean as Go's `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!(
            "strconv.ParseBool: parsing {text:?}: invalid syntax"
        )),
    }
}

/// Parses an integer as Go's `strconv.Atoi`.
pub(crate) fn parse_int(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        format!(
            "strconv.Atoi: parsing {:?}: {}",
            quotable(text),
            go_reason(&error)
        )
    })
}

/// Returns why a text is not an integer, in the words of Go.
pub(crate) fn go_reason(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}
