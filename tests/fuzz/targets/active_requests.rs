//! See `varve_fuzz::active_requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::active_requests(input));
