//! PromQL text, up to a value.
//!
//! ```text
//! text -> promql (parse, check) -> plan (times resolved, invariant parts found) -> eval (columns of steps) -> Value
//! ```
//!
//! A query is evaluated once for all of its steps: the value of every expression is a set of series, each a column with
//! one slot per step. An instant query is a range query of one step. `functions` holds the kernels, free functions over
//! slices; `eval` moves series through them. Numbers are computed column by column; native histograms (`histogram`) stand
//! in a sparse list beside the numbers of a column, so that float series pay nothing for them.
//!
//! Invariants
//! 1. Values are those of Prometheus 3.14, in its order of operations; docs/promql.md lists what differs and why.
//! 2. What is parsed and not evaluated is [`Error::Unsupported`], never a wrong answer.
//! 3. Everything that grows with data is charged to the request's memory budget, and every loop over series or steps
//!    asks the [`QueryContext`](varve_tsdb::QueryContext) whether to go on.
#![forbid(unsafe_code)]

mod annotations;
pub mod decimal;
mod engine;
mod error;
mod eval;
mod float;
mod functions;
mod histogram;
mod math;
mod plan;
pub mod promql;
mod stats;
pub mod usage;
mod value;

pub use annotations::{ANNOTATIONS_MAX, Annotations};
pub use engine::{Asked, Engine, EngineOptions, Parsed, QueryResult, Request, STEPS_MAX, Times};
pub use error::Error;
pub use histogram::{Bucket, FloatHistogram, MixedSchemas, print_stored};
pub use promql::Features;
pub use stats::{Operator, QueryStats, SampleStats, StepSamples, Timings};
pub use value::{HistogramPoint, MatrixSeries, Point, Value, VectorSample};
