//! The score of a name for a search term, from 0 to 1, as in Prometheus' `util/strutil` and
//! `web/api/v1/search_filters.go`.
//!
//! Characters are compared, not bytes. The time for a name is up to the square of its length, so
//! [`Steps`] checks the context of the request in between.

use varve_context::QueryContext;

/// The algorithm that compares terms with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// The term is a subsequence of the name.
    Subsequence,
    /// The term is a substring of the name, or similar to it.
    JaroWinkler,
}

/// Comparisons of characters between two checks of the request's context: about a millisecond.
const STEPS_PER_CHECK: usize = 1 << 20;

/// Counts comparisons of characters.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    ctx: &'a QueryContext,
    n_left: usize,
}

impl<'a> Steps<'a> {
    pub(super) fn new(ctx: &'a QueryContext) -> Self {
        Self {
            ctx,
            n_left: STEPS_PER_CHECK,
        }
    }

    /// Counts up to `n` comparisons.
    ///
    /// # Errors
    /// The interrupts of the request.
    fn take(&mut self, n: usize) -> varve_context::Result<()> {
        if let Some(n_left) = self.n_left.checked_sub(n) {
            self.n_left = n_left;
            return Ok(());
        }
        self.n_left = STEPS_PER_CHECK;
        self.ctx.check()
    }
}

/// The factor of scores that are not exact matches.
const NOT_EXACT: f64 = 0.999;

/// A term, and the way to compare it with names.
#[derive(Debug)]
pub(super) struct Term {
    text: String,
    chars: Vec<char>,
    algorithm: Algorithm,
    /// The minimum score of a match.
    threshold: f64,
}

impl Term {
    pub(super) fn new(text: String, algorithm: Algorithm, threshold: f64) -> Self {
        Self {
            chars: text.chars().collect(),
            text,
            algorithm,
            threshold,
        }
    }

    /// Returns the score of a name, or `None` if it does not match.
    ///
    /// # Errors
    /// The interrupts of the request.
    pub(super) fn score(
        &self,
        text: &str,
        chars: &[char],
        steps: &mut Steps<'_>,
    ) -> varve_context::Result<Option<f64>> {
        steps.take(text.len())?;
        if self.algorithm == Algorithm::Subsequence {
            if text.starts_with(&self.text) {
                return Ok(Some(1.0));
            }
            let score = subsequence(&self.chars, chars, steps)?;
            return Ok((score > 0.0 && score >= self.threshold).then_some(score));
        }
        if let Some(score) = self.substring(text, chars.len()) {
            return Ok(Some(score));
        }
        let score = if self.threshold > 0.0 {
            jaro_winkler(&self.chars, chars, steps)?
        } else {
            -1.0
        };
        Ok((score >= self.threshold).then_some(score))
    }

    /// Returns the score of a substring: the earlier, the better.
    fn substring(&self, text: &str, len: usize) -> Option<f64> {
        let n_before = match text.find(&self.text)? {
            0 => return Some(1.0),
            offset => text[..offset].chars().count(),
        };
        let last = len.saturating_sub(self.chars.len());
        Some(if last == 0 {
            1.0
        } else {
            1.0 - 0.9 * n_before as f64 / last as f64
        })
    }
}

/// Returns the score of a subsequence. Consecutive characters increase it, gaps decrease it.
fn subsequence(
    pattern: &[char],
    text: &[char],
    steps: &mut Steps<'_>,
) -> varve_context::Result<f64> {
    if pattern == text {
        return Ok(1.0);
    }
    if pattern.is_empty() || pattern.len() > text.len() {
        return Ok(0.0);
    }
    let mut best = -1.0f64;
    for start in 0..=text.len() - pattern.len() {
        if text[start] != pattern[0] {
            continue;
        }
        steps.take(text.len() - start)?;
        // A pattern that is incomplete from here is incomplete from any later position.
        let Some(score) = score_from(pattern, text, start) else {
            break;
        };
        best = best.max(score);
    }
    if best < 0.0 {
        return Ok(0.0);
    }
    Ok(best / (pattern.len() * pattern.len()) as f64 * NOT_EXACT)
}

/// Returns the score of the first match of the pattern from a position.
fn score_from(pattern: &[char], text: &[char], start: usize) -> Option<f64> {
    let per_char = 1.0 / text.len() as f64;
    let mut found = 0;
    let mut position = start;
    let mut behind_last = 0;
    let mut score = 0.0;
    while found < pattern.len() {
        position += text
            .get(position..)?
            .iter()
            .position(|c| *c == pattern[found])?;
        let from = position;
        while found < pattern.len() && text.get(position) == Some(&pattern[found]) {
            position += 1;
            found += 1;
        }
        if from > behind_last {
            score -= (from - behind_last) as f64 * per_char;
        }
        let n_consecutive = position - from;
        score += (n_consecutive * n_consecutive) as f64;
        behind_last = position;
    }
    if text.len() > behind_last {
        score -= (text.len() - behind_last) as f64 * per_char * 0.5;
    }
    Some(score)
}

/// Returns the Jaro-Winkler similarity, with a prefix of up to four characters.
fn jaro_winkler(a: &[char], b: &[char], steps: &mut Steps<'_>) -> varve_context::Result<f64> {
    if a == b {
        return Ok(1.0);
    }
    if a.is_empty() || b.is_empty() {
        return Ok(0.0);
    }
    let (short, long) = if a.len() > b.len() { (b, a) } else { (a, b) };
    let distance = (long.len() / 2).saturating_sub(1);
    let mut in_short = Vec::new();
    let mut in_long = vec![false; long.len()];
    for (i, c) in short.iter().enumerate() {
        let nearby = i.saturating_sub(distance)..(i + distance + 1).min(long.len());
        steps.take(nearby.len())?;
        for long_idx in nearby {
            if !in_long[long_idx] && long[long_idx] == *c {
                in_long[long_idx] = true;
                in_short.push(*c);
                break;
            }
        }
    }
    if in_short.is_empty() {
        return Ok(0.0);
    }
    let matched = long
        .iter()
        .zip(&in_long)
        .filter(|(_, is_matched)| **is_matched)
        .map(|(c, _)| c);
    let n_moved = in_short.iter().zip(matched).filter(|(a, b)| a != b).count() as f64;
    let n = in_short.len() as f64;
    // The order of operations matters for the last bit.
    let jaro =
        (n * (1.0 / short.len() as f64) + n * (1.0 / long.len() as f64) + (n - n_moved * 0.5) / n)
            / 3.0;
    let prefix = short
        .iter()
        .zip(long)
        .take(4)
        .take_while(|(a, b)| a == b)
        .count() as f64;
    Ok(jaro + prefix * 0.1 * (1.0 - jaro))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    fn check(algorithm: Algorithm, term: &str, text: &str, expect: Option<f64>) {
        let ctx = QueryContext::unbounded();
        let score = Term::new(term.to_owned(), algorithm, 0.0)
            .score(text, &chars(text), &mut Steps::new(&ctx))
            .unwrap();
        let is_close = match (score, expect) {
            (Some(score), Some(expect)) => (score - expect).abs() < 1e-9,
            (score, expect) => score == expect,
        };
        assert!(is_close, "{term} in {text}: {score:?}, expected {expect:?}");
    }

    #[test]
    fn subsequences_score_runs_minus_gaps() {
        use Algorithm::Subsequence;
        check(Subsequence, "up", "up", Some(1.0));
        check(Subsequence, "up", "upper", Some(1.0));
        check(Subsequence, "up", "pu", None);
        // A run of 2 from position 2 of 5: 4 - 2/5 - 1/10, over 4.
        check(
            Subsequence,
            "up",
            "xyupz",
            Some((4.0 - 0.4 - 0.1) / 4.0 * 0.999),
        );
        // Runs of 1 and 1 with a gap of 1 between, and 1 before and behind.
        check(
            Subsequence,
            "ac",
            "xabcx",
            Some((2.0 - 0.2 - 0.2 - 0.1) / 4.0 * 0.999),
        );
        check(Subsequence, "é", "aé", Some((1.0 - 0.5) * 0.999));
        check(Subsequence, "abc", "ab", None);
    }

    #[test]
    fn substrings_score_their_position() {
        use Algorithm::JaroWinkler;
        check(JaroWinkler, "up", "upper", Some(1.0));
        check(JaroWinkler, "up", "xup", Some(1.0 - 0.9));
        check(JaroWinkler, "up", "xupxx", Some(1.0 - 0.9 / 3.0));
        check(JaroWinkler, "up", "nothing", None);
    }

    #[test]
    fn similar_names_score_as_in_the_literature() {
        let ctx = QueryContext::unbounded();
        let jaro_winkler =
            |a: &str, b: &str| jaro_winkler(&chars(a), &chars(b), &mut Steps::new(&ctx)).unwrap();
        for (a, b, expect) in [
            ("MARTHA", "MARHTA", 0.9611),
            ("DIXON", "DICKSONX", 0.8133),
            ("DWAYNE", "DUANE", 0.84),
        ] {
            assert!((jaro_winkler(a, b) - expect).abs() < 1e-4, "{a} {b}");
        }
        assert_eq!(jaro_winkler("a", "b"), 0.0);
    }

    #[test]
    fn the_comparison_of_long_texts_is_interrupted() {
        let ctx = QueryContext::unbounded();
        ctx.interrupt(varve_context::Interrupt::Canceled);
        let text = "a".repeat(1 << 20);
        for (algorithm, term) in [
            (Algorithm::Subsequence, "ab".to_owned()),
            (Algorithm::Subsequence, format!("{}b", "a".repeat(1000))),
            (Algorithm::JaroWinkler, "b".repeat(1 << 16)),
        ] {
            let text = format!("{text}b");
            let term = Term::new(term, algorithm, 1.0);
            let interrupted = term
                .score(&text, &chars(&text), &mut Steps::new(&ctx))
                .unwrap_err();
            assert!(
                matches!(interrupted, varve_context::Error::Interrupted(_)),
                "{algorithm:?} {interrupted}"
            );
        }
    }
}
