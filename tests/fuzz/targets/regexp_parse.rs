//! See `varve_fuzz::regexp_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::regexp_parse(input));
