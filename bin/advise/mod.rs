//! `varve advise`: what of the stored metrics nobody needs.
//!
//! ```text
//! rules, dashboards, grafana, record -> template -> needs  \
//!                                                          findings -> report, relabel_rules
//! exposition, a running server       ->       inventory    /
//! ```
//!
//! Needs are taken wide and costs as they are: where a dashboard leaves open what it selects, everything that it may select
//! is kept, and what cannot be parsed keeps each metric whose name stands in it.

mod alternation;
mod args;
mod dashboards;
mod documents;
mod drops;
mod exposition;
mod findings;
mod inventory;
mod needs;
mod problems;
mod record;
mod relabel_rules;
mod report;
mod rules;
mod template;
mod usage;

pub(crate) use args::AdviseCommand;
pub(crate) use drops::drops;
pub(crate) use usage::usage;
