//! See `varve_fuzz::request_ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::request_ring(input));
