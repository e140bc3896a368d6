//! See `varve_fuzz::prometheus_chunk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::prometheus_chunk(input));
