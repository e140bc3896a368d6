//! The OpenAPI document: parameters, and responses without a type.
//!
//! `varve_wire::schema!` defines a response type together with its schema. Streamed responses have
//! no type: `streamed` describes them, and a test compares real responses with these descriptions.

mod parameters;
mod streamed;

pub(super) use parameters::{Kind, Parameter, optional, required};
pub(super) use streamed::{
    ExemplarSeries, Label, MetadataFamilies, QueryData, SyntaxTree, Untyped,
};
