//! See `varve_fuzz::wal_replay`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| varve_fuzz::wal_replay(input));
