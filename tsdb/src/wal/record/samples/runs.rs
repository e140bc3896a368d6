//! Runs of equal steps, which the columns of refs and timestamps consist of.

/// Iterates over the runs of equal steps, with their lengths. `step` returns the step to the
/// element at an index from 1 to `n - 1`.
pub(super) fn runs<T: PartialEq>(
    n: usize,
    step: impl Fn(usize) -> T,
) -> impl Iterator<Item = (T, usize)> {
    let mut i = 1;
    std::iter::from_fn(move || {
        let start = i;
        if start >= n {
            return None;
        }
        let step_of_run = step(start);
        i += 1;
        while i < n && step(i) == step_of_run {
            i += 1;
        }
        Some((step_of_run, i - start))
    })
}
