//! Sampling of series by hash: `limit_ratio`.

use varve_model::Labels;
use xxhash_rust::xxh64::xxh64;

/// Returns Prometheus' hash of a label set as a fraction of the hash space, in [0, 1).
pub(crate) fn sampling_offset(labels: &Labels) -> f64 {
    let mut bytes = Vec::with_capacity(labels.size());
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(len) if len < u8::MAX => bytes.push(len),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0) as f64 / u64::MAX as f64
}
