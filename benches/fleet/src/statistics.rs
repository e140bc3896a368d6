//! Statistics of measured values.

use std::time::Duration;

/// Returns the median.
pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the geometric mean. Returns `None` if there is no value.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        let mut times = [5, 1, 3].map(Duration::from_millis);
        assert_eq!(median(&mut times), Duration::from_millis(3));
        assert_eq!(median(&mut []), Duration::ZERO);
    }

    #[test]
    fn the_geometric_mean_of_a_ratio_and_its_inverse_is_1() {
        let mean = geometric_mean(&[0.25, 4.0, 1.0]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
