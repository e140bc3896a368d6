//! The sender of a request: its connection, its user, and the tenant that the user belongs to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use varve_config::web::{TenantConfig, TenantLimits};
use varve_context::{Limit, MemoryBudget, ReadOptions};
use varve_model::Matcher;

use super::fair_semaphore::FairSemaphore;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The client's address of a connection. An extension of each of its requests.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The authenticated user. An extension of a request where authentication is configured.
#[derive(Debug, Clone)]
pub struct User {
    /// The name of the user or token.
    pub name: Arc<str>,
    /// The tenant that the requests of the user are restricted to.
    pub tenant: Option<Arc<Tenant>>,
}

/// The identity of a tenant, as a part of keys. No other tenant of the process has it, also not the
/// same one after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantId(u64);

/// The series that some users may read, and the labels of what they write.
#[derive(Debug)]
pub struct Tenant {
    /// Matchers that are added to every selection of a request.
    pub matchers: Arc<[Matcher]>,
    /// Labels that all series of a write request get.
    pub labels: Vec<(String, String)>,
    /// One permit for each read that may be active, if their number is limited.
    pub reads: Option<FairSemaphore>,
    /// Limits of its reads.
    limits: TenantLimits,
    id: TenantId,
    /// The budget of this memory, from the first read on.
    memory: OnceLock<MemoryBudget>,
}

impl Tenant {
    /// Creates the tenant of an entry of the web configuration.
    pub fn new(config: &TenantConfig) -> Self {
        Self {
            matchers: config.matchers.as_slice().into(),
            labels: config.labels.clone(),
            reads: config.limits.concurrency_max.map(FairSemaphore::new),
            limits: config.limits.clone(),
            id: TenantId(NEXT_ID.fetch_add(1, Ordering::Relaxed)),
            memory: OnceLock::new(),
        }
    }

    /// Returns the identity.
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// Limits what a request may read.
    pub(crate) fn limit(&self, options: &mut ReadOptions) {
        if let Some(samples_max) = self.limits.samples_max {
            options.samples_max = Some((Limit::TenantSamples, samples_max));
        }
        if let Some(range_max) = self.limits.range_max {
            options.range_s_max = Some((Limit::TenantRange, range_max.as_secs()));
        }
    }

    /// Returns the budget on which its reads draw, a part of the budget of all queries.
    pub(crate) fn memory<'a>(&'a self, all_queries: &'a MemoryBudget) -> &'a MemoryBudget {
        match self.limits.memory_max {
            Some(memory_max) => self
                .memory
                .get_or_init(|| all_queries.child(Limit::TenantMemory, memory_max)),
            None => all_queries,
        }
    }
}
