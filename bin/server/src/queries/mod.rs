//! Records of queries: the query log, the most expensive ones, and those that exceeded a memory
//! limit.

pub mod query_breaker;
pub mod query_log;
pub mod query_stats;
pub mod top_queries;
