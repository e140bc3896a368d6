//! Growing collections whose values are never moved as a whole.
//!
//! Used by the heads of the store, and by `varve-prometheus`, whose series tables grow in the same way.

pub use crate::index::{Arena, Column, Piece};
