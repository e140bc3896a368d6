//! [`ClusterName`]: the key of a cluster.

use std::fmt;

use varve_model::TenantLabels;

/// Maximum bytes of the name of a cluster or replica.
pub(super) const NAME_SIZE_MAX: usize = 256;

/// The name of a cluster: the value of the cluster label, and the labels of the tenant if there is
/// one, as in `eu{team="a"}`.
///
/// No value that a sender chooses gives it the cluster of another tenant: the name ends with the
/// labels of its own tenant. Without a tenant, a value that ends with a brace gets `{}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterName(Box<str>);

impl ClusterName {
    /// Returns the name, or `None` if it is longer than [`NAME_SIZE_MAX`].
    pub(super) fn new(cluster: &str, tenant: &TenantLabels) -> Option<Self> {
        let name = if tenant.is_empty() && cluster.ends_with('}') {
            format!("{cluster}{{}}")
        } else {
            format!("{cluster}{tenant}")
        };
        (name.len() <= NAME_SIZE_MAX).then(|| Self(name.into()))
    }

    /// Returns a name that was persisted.
    pub(super) fn persisted(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns a key of the tenant, empty without one: what follows the last opening brace. Tenants whose
    /// last value contains a brace may share one, and then share a limit.
    pub(super) fn tenant_key(&self) -> &str {
        match self.0.rsplit_once('{') {
            Some((_, tenant)) if self.0.ends_with('}') => tenant.trim_end_matches('}'),
            _ => "",
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tenants_are_different() {
        let none = TenantLabels::default();
        let a = TenantLabels::new(&[("team".to_owned(), "a".to_owned())]);
        let name = |cluster: &str, tenant| ClusterName::new(cluster, tenant).unwrap().to_string();
        assert_eq!(name("eu", &none), "eu");
        assert_eq!(name("eu", &a), r#"eu{team="a"}"#);
        assert_eq!(name(r#"eu{team="a"}"#, &none), r#"eu{team="a"}{}"#);
        assert_eq!(name("{}", &none), "{}{}");
        let tenant_of = |cluster: &str, tenant| {
            let name = ClusterName::new(cluster, tenant).unwrap();
            name.tenant_key().to_owned()
        };
        assert_eq!(tenant_of("eu", &a), tenant_of("x}{", &a));
        for cluster in ["eu", r#"eu{team="a"}"#, "{}", "{", "}", ""] {
            assert_eq!(tenant_of(cluster, &none), "", "{cluster}");
        }
        let longest = "x".repeat(NAME_SIZE_MAX);
        assert!(ClusterName::new(&longest, &none).is_some());
        assert!(ClusterName::new(&longest, &a).is_none());
    }
}
