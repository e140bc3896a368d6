//! See `varve_fuzz::prometheus_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::prometheus_block(input));
