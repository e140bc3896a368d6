//! Checks of the tree that need no binary: dependencies between crates, packed code, import
//! cycles, complete documentation, forbidden text. They run in seconds: `cargo tidy`.
//!
//! Checks of flags and metrics ask the program, so they are black-box tests (`tests/docs.rs`).

#![forbid(unsafe_code)]
#![cfg(test)]

mod tree;

mod crates;
mod docs;
mod names;
mod tables;
mod text;

mod cycles;
mod exceptions;
mod patterns;
mod ratchet;
mod source;
