//! Regular expressions that match exactly a set of names, shortened by common prefixes:
//! `kube_(node_(info|role)|pod_info)`.

use varve_regexp::Regexp;

/// Maximum nesting of groups. Deeper names are written out.
const DEPTH_MAX: usize = 32;

/// Returns expressions that together match exactly `names`, each of at most `size_max` bytes unless
/// one name is longer, and with the number of names that it matches. `names` ascend and are unique.
/// The expressions match them in order.
pub(crate) fn alternations(names: &[&str], size_max: usize) -> Vec<(String, usize)> {
    let whole = factor(names, 0);
    if whole.len() <= size_max || names.len() < 2 {
        return vec![(whole, names.len())];
    }
    let (first, second) = names.split_at(names.len() / 2);
    let mut parts = alternations(first, size_max);
    parts.extend(alternations(second, size_max));
    parts
}

/// Returns the expression of some names, without an enclosing group.
fn factor(names: &[&str], depth: usize) -> String {
    if depth == DEPTH_MAX {
        return names
            .iter()
            .map(|name| Regexp::escape(name))
            .collect::<Vec<_>>()
            .join("|");
    }
    let mut parts = Vec::new();
    for group in names.chunk_by(|a, b| first_word(a) == first_word(b)) {
        let word = first_word(group[0]);
        if let [name] = group {
            parts.push(Regexp::escape(name));
            continue;
        }
        let rests: Vec<_> = group.iter().map(|name| &name[word.len()..]).collect();
        let inner = factor(&rests, depth + 1);
        let is_one = rests
            .chunk_by(|a, b| first_word(a) == first_word(b))
            .count()
            == 1;
        let word = Regexp::escape(word);
        parts.push(if is_one {
            format!("{word}{inner}")
        } else {
            format!("{word}({inner})")
        });
    }
    parts.join("|")
}

/// Returns the name up to and including its first underscore.
fn first_word(name: &str) -> &str {
    &name[..name.find('_').map_or(name.len(), |at| at + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn check(names: &[&str], expect: &str) {
        assert_eq!(factor(names, 0), expect);
    }

    #[test]
    fn common_prefixes_occur_once() {
        check(
            &["kube_node_info", "kube_node_role", "kube_pod_info"],
            "kube_(node_(info|role)|pod_info)",
        );
        check(
            &["a_b_bucket", "a_b_count", "a_b_sum"],
            "a_b_(bucket|count|sum)",
        );
        check(&["a"], "a");
        check(&["a", "a_b", "ab"], "a|a_b|ab");
        check(&["a.b", "a_"], "a\\.b|a_");
        check(&["a_", "a_b"], "a_(|b)");
    }

    #[test]
    fn long_sets_are_split() {
        let names: Vec<_> = (0..100).map(|i| format!("metric{i:03}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let parts = alternations(&names, 256);
        assert!(parts.len() > 3 && parts.iter().all(|(part, _)| part.len() <= 256));
        assert_eq!(parts.iter().map(|(_, n_names)| n_names).sum::<usize>(), 100);
        let deep = "_".repeat(500);
        let factored = factor(&[&deep, &format!("{deep}a")], 0);
        assert!(Regexp::parse(&factored).unwrap().is_match(&deep));
    }

    proptest! {
        #[test]
        fn they_match_exactly_the_names(names in prop::collection::btree_set("[ab_.]{1,6}", 1..20), other in "[ab_.]{1,6}") {
            let names: BTreeSet<String> = names;
            let sorted: Vec<_> = names.iter().map(String::as_str).collect();
            let parse = |(part, n_names): (String, usize)| (Regexp::parse(&part).unwrap(), n_names);
            let parts: Vec<_> = alternations(&sorted, 24).into_iter().map(parse).collect();
            for (part, n_names) in &parts {
                prop_assert_eq!(sorted.iter().filter(|name| part.is_match(name)).count(), *n_names);
            }
            for name in sorted.iter().copied().chain([other.as_str()]) {
                let matched = parts.iter().any(|(part, _)| part.is_match(name));
                prop_assert_eq!(matched, names.contains(name), "{}", name);
            }
        }
    }
}
