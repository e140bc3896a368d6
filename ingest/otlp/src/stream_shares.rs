//! [`StreamShares`]: how many streams with delta temporality each tenant has, and their limits.

use std::collections::HashMap;
use std::sync::Arc;

use varve_model::{TenantLabels, may_add};

/// Maximum number of streams.
pub(super) const STREAMS_MAX: usize = 100_000;
/// Maximum size of all totals.
pub(super) const SIZE_MAX_BYTES: usize = 128 << 20;

/// The number and the size of the streams of all senders, and of each tenant.
#[derive(Debug, Default)]
pub(super) struct StreamShares {
    all: Usage,
    by_tenant: HashMap<Arc<TenantLabels>, Usage>,
}

/// The number of streams, and the size of their totals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Usage {
    n_streams: usize,
    size: usize,
}

impl StreamShares {
    /// Adds a stream. Returns its tenant.
    ///
    /// # Errors
    /// If a limit would be exceeded.
    pub(super) fn add(
        &mut self,
        tenant: &TenantLabels,
        size: usize,
    ) -> Result<Arc<TenantLabels>, String> {
        let own = self.by_tenant.get(tenant).copied().unwrap_or_default();
        let n_free = STREAMS_MAX - self.all.n_streams;
        if n_free == 0 {
            return Err(full());
        }
        if !may_add(!tenant.is_empty(), own.n_streams, n_free) {
            return Err(share_is_full());
        }
        self.check_size(tenant, own, size)?;
        let tenant = match self.by_tenant.get_key_value(tenant) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(tenant.clone()),
        };
        let own = self.by_tenant.entry(Arc::clone(&tenant)).or_default();
        for usage in [&mut self.all, own] {
            usage.n_streams += 1;
            usage.size += size;
        }
        Ok(tenant)
    }

    /// Changes the size of the total of a stream.
    ///
    /// # Errors
    /// If it grows beyond a limit. Nothing changes then.
    pub(super) fn resize(
        &mut self,
        tenant: &TenantLabels,
        old: usize,
        new: usize,
    ) -> Result<(), String> {
        if new > old {
            let own = self.by_tenant.get(tenant).copied().unwrap_or_default();
            self.check_size(tenant, own, new - old)?;
        }
        self.set_size(tenant, old, new);
        Ok(())
    }

    /// Replaces the size of the total of a stream, without a check.
    pub(super) fn set_size(&mut self, tenant: &TenantLabels, old: usize, new: usize) {
        self.all.size = self.all.size - old + new;
        if let Some(own) = self.by_tenant.get_mut(tenant) {
            own.size = own.size - old + new;
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, tenant: &TenantLabels, size: usize) {
        let own = self.by_tenant.get_mut(tenant);
        for usage in [&mut self.all].into_iter().chain(own) {
            usage.n_streams -= 1;
            usage.size -= size;
        }
        if self
            .by_tenant
            .get(tenant)
            .is_some_and(|own| own.n_streams == 0)
        {
            self.by_tenant.remove(tenant);
        }
    }

    /// Returns the size of all totals.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.all.size
    }

    /// Checks the limits of the size of a tenant whose streams grow.
    fn check_size(&self, tenant: &TenantLabels, own: Usage, added: usize) -> Result<(), String> {
        let free = SIZE_MAX_BYTES.saturating_sub(self.all.size);
        if added > free {
            return Err(full());
        }
        // `may_add` is strict, but a tenant may take exactly half.
        if !may_add(!tenant.is_empty(), own.size + added, free - added + 1) {
            return Err(share_is_full());
        }
        Ok(())
    }
}

/// Returns the reason why a delta is rejected that needs another stream, or more memory. It tells a tenant nothing about
/// the streams of others.
fn full() -> String {
    format!(
        "the streams with delta temporality of all senders would exceed the limit of {STREAMS_MAX} streams or {SIZE_MAX_BYTES} bytes"
    )
}

/// Returns the reason why a delta of a tenant is rejected while other tenants may have more streams.
fn share_is_full() -> String {
    format!(
        "the streams with delta temporality of this tenant would exceed its share of {STREAMS_MAX} streams and {SIZE_MAX_BYTES} bytes: as much as is free for others"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(team: &str) -> TenantLabels {
        TenantLabels::new(&[("team".to_owned(), team.to_owned())])
    }

    /// Adds streams until one is rejected. Returns how many were added, and why no more.
    fn fill(shares: &mut StreamShares, tenant: &TenantLabels, size: usize) -> (usize, String) {
        let mut n_added = 0;
        loop {
            match shares.add(tenant, size) {
                Ok(_) => n_added += 1,
                Err(reason) => return (n_added, reason),
            }
        }
    }

    #[test]
    fn no_tenant_takes_all_streams() {
        let mut shares = StreamShares::default();
        let none = TenantLabels::default();
        let mut n_added = Vec::new();
        for team in ["a", "b", "c"] {
            let (n, reason) = fill(&mut shares, &tenant(team), 1);
            assert!(reason.contains("its share"), "{reason}");
            n_added.push(n);
        }
        assert_eq!(n_added, [STREAMS_MAX / 2, STREAMS_MAX / 4, STREAMS_MAX / 8]);
        let (n, reason) = fill(&mut shares, &none, 1);
        assert_eq!(n, STREAMS_MAX / 8);
        assert!(reason.contains("of all senders"), "{reason}");
    }

    #[test]
    fn no_tenant_takes_all_bytes_and_others_return_theirs() {
        let mut shares = StreamShares::default();
        const SIZE: usize = SIZE_MAX_BYTES / 64;
        let tenants = ["a", "b"].map(tenant);
        let added = tenants
            .each_ref()
            .map(|tenant| fill(&mut shares, tenant, SIZE).0);
        assert_eq!(added, [32, 16]);
        let [a, b] = &tenants;
        shares.resize(b, SIZE, SIZE + 1).unwrap_err();
        shares.resize(b, SIZE, SIZE - 1).unwrap();
        shares.resize(b, SIZE - 1, SIZE).unwrap();
        for _ in 0..32 {
            shares.remove(a, SIZE);
        }
        assert_eq!((shares.size(), shares.by_tenant.len()), (16 * SIZE, 1));
        assert_eq!(fill(&mut shares, a, SIZE).0, 24);
    }
}
