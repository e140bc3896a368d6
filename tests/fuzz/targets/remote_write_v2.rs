//! See `varve_fuzz::remote_write_v2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::remote_write_v2(input));
