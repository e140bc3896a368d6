//! See `varve_fuzz::ha_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::ha_file(input));
