//! See `varve_fuzz::usage_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::usage_record(input));
