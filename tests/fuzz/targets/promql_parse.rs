//! See `varve_fuzz::promql_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::promql_parse(input));
