//! Result cache: results of queries, each valid until a sample that it depends on changes.
//!
//! Used by [`Engine`](crate::Engine). A result is cached with the version of the store that it saw.
//! Before it is used again, the store is asked which samples changed since ([`Db::changes`]). The
//! steps that read none of them are returned from the cache. Later steps are evaluated and joined
//! to them. The proof that the response equals that of an evaluation of all steps is in
//! docs/decisions/query/0022-result-cache.md.
//!
//! Invariants
//! 1. A cached step is used only if none of the samples that it depends on changed ([`query`]),
//!    both before the other steps are evaluated and after.
//! 2. Steps are joined only if each can be computed without the others ([`dependencies`]), and if the
//!    annotations of one evaluation are known from those of both parts
//!    ([`Annotations::join`](crate::Annotations)). Any other result is used only for the same query
//!    at the same times.
//! 3. The entries have at most the size of the cache. The least recently used ones are evicted.
//!
//! Threads: any; the lock is held to look up, insert or evict an entry, not to copy or join
//! results.

mod dependencies;
mod join;
mod key;
mod query;
mod results;
#[cfg(test)]
mod tests;

pub(crate) use dependencies::Dependencies;
pub(crate) use key::QueryKey;
pub(crate) use query::{CachedPart, CachedQuery};
pub use results::CacheStats;
pub(crate) use results::ResultCache;
