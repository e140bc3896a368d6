//! PromQL text, up to a value.
//!
//! ```text
//! text -> promql (parse, check) -> plan (resolve times, find common subexpressions) -> eval (columns of steps) -> Value
//! ```
//!
//! A query is evaluated once for all of its steps: the value of every expression is a set of series, each a column with one
//! value per step. An instant query is a range query of one step. `functions` holds the kernels, free functions over slices;
//! `eval` moves series through them. Floats are computed column by column. Native histograms (`histogram`) are in a sparse
//! list beside the floats of a column, so series of floats pay nothing for them.
//!
//! Invariants
//! 1. Values are those of Prometheus 3.14, in its order of operations; docs/promql.md lists the differences.
//! 2. An expression that is parsed but not supported is [`Error::Unsupported`], never a wrong result.
//! 3. Everything that grows with the data is charged to the request's memory budget, and every loop over series or steps
//!    checks the [`QueryContext`](varve_tsdb::QueryContext).
#![forbid(unsafe_code)]

mod eval;
mod functions;
pub mod histogram;
mod math;
mod plan;
pub mod promql;

mod annotations;
mod engine;
mod error;
pub mod stats;
pub mod usage;
mod value;

mod date;
pub mod decimal;

pub use annotations::{ANNOTATIONS_MAX, Annotations};
pub use engine::{Engine, EngineOptions, ParsedQuery, QueryResult, Request, STEPS_MAX, Times};
pub use error::Error;
pub use value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};
