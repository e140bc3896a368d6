//! See `varve_fuzz::row_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::row_decode(input));
