//! The records of the log. An integer is a varint. A string is its size as a varint, then UTF-8.
//!
//! | number | record | module |
//! | --- | --- | --- |
//! | 1 | series | [`definitions`] |
//! | 2 | samples | [`samples`] |
//! | 3 | metadata | [`definitions`] |
//! | 4 | histograms | [`histograms`] |
//! | 6 | exemplars | [`exemplars`] |
//! | 7 | start timestamps | [`start_timestamps`] |
//!
//! A record decodes independently, except that a start timestamps record applies to the next
//! record. Numbers 5 and 8 to 15 are reserved. Numbers from 16 on belong to the checkpoint
//! ([`checkpoint`](super::checkpoint)).

mod definitions;
mod exemplars;
mod histograms;
mod samples;
mod start_timestamps;

pub(crate) use definitions::{
    DefinedLabel, METADATA, Repeats, SERIES, decode_metadata, decode_series, to_labels,
};
pub(super) use definitions::{encode_metadata, encode_series, put_labels, put_string, take_string};
pub(crate) use exemplars::{EXEMPLARS, decode_exemplars};
pub(super) use exemplars::{encode_exemplar, put_exemplar, take_exemplar};
pub(super) use histograms::encode_histograms;
pub(crate) use histograms::{HISTOGRAMS, LoggedHistogram, decode_histograms};
pub use samples::SampleSizes;
pub(crate) use samples::{SAMPLES, SampleColumn, decode_samples};
pub(super) use samples::{Scratch, decode_sized, encode_samples};
pub(super) use start_timestamps::{RECORD_SAMPLES_MAX, encode_start_timestamps};
pub(crate) use start_timestamps::{
    START_TIMESTAMPS, StartTimestamp, StartTimestamps, decode_start_timestamps,
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_series(&bytes, |_, _| {});
            let _ = decode_samples(&bytes, &mut SampleColumn::default());
            let _ = decode_metadata(&bytes, |_, _| {});
            let _ = decode_histograms(&bytes, |_| {});
            let _ = decode_exemplars(&bytes, |_, _, _| {});
            let _ = decode_start_timestamps(&bytes, |_, _, _| {});
        }
    }
}
