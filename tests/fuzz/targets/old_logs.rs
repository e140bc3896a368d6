//! See `varve_fuzz::old_logs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::old_logs(input));
