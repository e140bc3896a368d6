//! See `varve_fuzz::store_open`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::store_open(input));
