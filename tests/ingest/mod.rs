//! Steps of ingestion that depend on the configuration: deduplication of HA pairs, relabeling.

mod ha;
mod relabel;
