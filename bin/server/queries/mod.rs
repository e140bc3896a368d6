//! Records of queries: the query log, the most expensive ones, and those that exceeded a memory limit.

pub(crate) mod query_breaker;
pub(crate) mod query_log;
pub(crate) mod top_queries;
