//! [`StreamKey`]: the key of a stream with delta temporality.

use std::hash::{BuildHasher, RandomState};

use varve_model::TenantLabels;

use super::labels::LabelMap;

/// The hash of a stream's tenant, name and labels, with random keys, so that no sender can
/// construct a collision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamKey([u64; 2]);

/// Hashes the keys of streams.
#[derive(Debug, Default)]
pub(super) struct StreamHasher([RandomState; 2]);

/// The bytes before the strings of a key. No string contains them.
const TENANT_LABEL: u8 = 0xfd;
const POINT_LABEL: u8 = 0xfe;
const LABEL_VALUE: u8 = 0xff;

impl StreamHasher {
    /// Returns the key of a stream: hashes of its tenant, name and labels.
    pub(super) fn key(&self, tenant: &TenantLabels, name: &str, labels: &LabelMap) -> StreamKey {
        let mut identity = name.as_bytes().to_vec();
        // The labels of the tenant replace those of the data point.
        let of_tenant = tenant
            .iter()
            .map(|(name, value)| (TENANT_LABEL, name, value));
        let of_point = labels
            .iter()
            .map(|(name, value)| (POINT_LABEL, name, value))
            .filter(|(_, name, _)| tenant.get(name).is_none());
        for (kind, name, value) in of_tenant.chain(of_point) {
            identity.push(kind);
            identity.extend_from_slice(name.as_bytes());
            identity.push(LABEL_VALUE);
            identity.extend_from_slice(value.as_bytes());
        }
        StreamKey(self.0.each_ref().map(|hasher| hasher.hash_one(&identity)))
    }
}
