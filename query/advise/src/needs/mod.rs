//! The needs of rules, dashboards and queries: selectors and their location, indexed by metric
//! name.
//!
//! Needs err on the safe side. The selectors of a dashboard with variables are never narrower than
//! the queries that Grafana sends. An expression that does not parse is reported as a [`Problem`],
//! and needs every metric whose name occurs in it.

mod index;
mod need;

mod dashboards;
mod pieces;
mod problem;
mod relabeled;
mod rules;
mod template;
mod usage_record;
mod variables;

pub use dashboards::Dashboards;
pub use index::Needs;
pub use need::Nameless;
pub(crate) use need::Selector;
pub use problem::Problem;
pub use relabeled::{Reader, SelectionChange};
pub use usage_record::is_exploration;
