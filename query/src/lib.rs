//! PromQL engine: parses, plans and evaluates a query.
//!
//! ```text
//! text -> varve-promql (parse, check) -> plan (resolve times, find common subexpressions)
//!      -> eval (columns of steps) -> Value
//! ```
//!
//! A query is evaluated once for all steps. The value of an expression is a set of series, each a
//! column with one value per step. An instant query is a range query with one step. `functions`
//! holds the kernels, free functions over slices; `eval` applies them to series. Floats are
//! computed column by column. A column stores its native histograms (`histogram`) in a separate
//! sparse list, so float series have no overhead.
//!
//! Invariants
//! 1. Results equal those of Prometheus 3.16, including the order of floating-point operations.
//!    docs/promql.md lists the differences.
//! 2. An unsupported expression fails with [`Error::Unsupported`]; it never returns a wrong result.
//! 3. All memory that grows with the data is charged to the memory budget of the request. Every
//!    loop over series or steps checks the [`QueryContext`](varve_context::QueryContext).
#![forbid(unsafe_code)]

mod cache;
mod eval;
mod functions;
pub mod histogram;
mod math;
mod plan;
mod step_set;
mod steps;

mod annotations;
mod engine;
mod error;
pub mod stats;
pub mod usage;
mod value;

pub mod date;

pub use annotations::{ANNOTATIONS_MAX, Annotations};
pub use cache::CacheStats;
pub use engine::{Engine, EngineOptions, ParsedQuery, QueryResult, Request, STEPS_MAX};
pub use error::Error;
pub use eval::select::{ScanPlan, SharedScans};
pub use steps::Steps;
pub use value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};
