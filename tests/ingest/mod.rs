//! Steps of ingestion that depend on the configuration: budgets, deduplication of HA pairs,
//! relabeling.

mod admission;
mod ha;
mod relabel;
