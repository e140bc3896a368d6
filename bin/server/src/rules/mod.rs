//! Recording and alerting rules of a running server: loads rule files, and evaluates groups at
//! their times.
//!
//! `load` reads the files; `state` holds the rules in force; `agenda` knows which evaluations are
//! due; `scheduler` runs them on a bounded number of threads; `storage` connects rules with the
//! store; `failure_log` bounds the log lines about failures. The rules themselves are in the crate `varve-rules`.
//!
//! Invariants
//! 1. A reload whose rule files are invalid changes nothing.
//! 2. Each query of a rule is an active request. Its deadline is at most the group's interval, and
//!    its memory is charged to the budget of all rules.
//! 3. At most `--rules.concurrency` threads evaluate rules at a time, and they let write requests
//!    run first. Queries do not use the worker pool of the engine.
//!
//! Threads: one scheduler, `--rules.concurrency` threads of groups, and helpers for independent
//! rules of a group. They start after the replay, and end after [`Rules::stop`].

mod agenda;
mod collect;
mod failure_log;
mod load;
mod metrics;
mod scheduler;
mod state;
mod storage;

pub use collect::collect;
pub(crate) use load::hash_files;
pub use scheduler::start;
pub use state::{PreparedRules, RuleHost, Rules};
