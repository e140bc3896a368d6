//! What a NaN of an imported text means.
//!
//! Neither of the text formats has staleness markers. VictoriaMetrics stores no NaN but staleness
//! markers, so each NaN of its exports is one. A scrape body has none, so each NaN of it is a value.

use std::str::FromStr;

use varve_model::staleness::STALE_NAN_BITS;

/// What a NaN means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanMeaning {
    /// A staleness marker: the series ends here.
    Marker,
    /// The value NaN.
    Value,
    /// No sample.
    Skip,
}

impl NanMeaning {
    /// The names, as [`NanMeaning::from_str`] accepts them.
    pub const NAMES: [&'static str; 3] = ["marker", "value", "skip"];

    /// Returns the value to store for a parsed value, or `None` to store none.
    #[must_use]
    pub fn apply(self, value: f64) -> Option<f64> {
        if !value.is_nan() {
            return Some(value);
        }
        match self {
            Self::Marker => Some(f64::from_bits(STALE_NAN_BITS)),
            Self::Value => Some(f64::from_bits(NORMAL_NAN_BITS)),
            Self::Skip => None,
        }
    }
}

impl FromStr for NanMeaning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "marker" => Ok(Self::Marker),
            "value" => Ok(Self::Value),
            "skip" => Ok(Self::Skip),
            _ => Err(format!("{text:?} is none of {}", Self::NAMES.join(", "))),
        }
    }
}

/// The bits of a NaN in Prometheus that is not a staleness marker.
pub(super) const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::staleness::is_stale_nan;

    #[test]
    fn each_meaning_has_a_name() {
        for name in NanMeaning::NAMES {
            assert!(name.parse::<NanMeaning>().is_ok(), "{name}");
        }
        let error = "nan".parse::<NanMeaning>().unwrap_err();
        assert_eq!(error, "\"nan\" is none of marker, value, skip");
    }

    #[test]
    fn only_nan_is_changed() {
        for meaning in [NanMeaning::Marker, NanMeaning::Value, NanMeaning::Skip] {
            for value in [0.0, f64::INFINITY] {
                assert_eq!(meaning.apply(value), Some(value));
            }
        }
        assert!(NanMeaning::Marker.apply(f64::NAN).is_some_and(is_stale_nan));
        let value = NanMeaning::Value.apply(f64::from_bits(STALE_NAN_BITS));
        assert_eq!(value.map(f64::to_bits), Some(NORMAL_NAN_BITS));
        assert_eq!(NanMeaning::Skip.apply(f64::NAN), None);
    }
}
