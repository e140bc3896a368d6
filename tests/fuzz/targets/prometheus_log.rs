//! See `varve_fuzz::prometheus_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::prometheus_log(input));
