//! Metadata of metric families as a request sees it: each tenant may have described a family.

use std::ops::Bound;

use varve_model::metadata::{Families, FamilyKey, Metadata};
use varve_tsdb::ReadContext;

use crate::error::Result;

/// The metadata that a request sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleFamilies<'a> {
    families: &'a Families,
    ctx: &'a ReadContext,
}

impl<'a> VisibleFamilies<'a> {
    pub(crate) fn new(families: &'a Families, ctx: &'a ReadContext) -> Self {
        Self { families, ctx }
    }

    /// Calls `each` with the families in order of their names, and their different metadata, at
    /// least one, until it returns `false`.
    ///
    /// # Errors
    /// The errors of `each`, and if the request is interrupted.
    pub(crate) fn visit(
        self,
        mut each: impl FnMut(&'a str, &[&'a Metadata]) -> Result<bool>,
    ) -> Result<()> {
        let mut keys = self.families.iter().peekable();
        while let Some((key, metadata)) = keys.next() {
            let name = FamilyKey::parse(key).name;
            let mut found = vec![(FamilyKey::parse(key), &**metadata)];
            while let Some((key, metadata)) =
                keys.next_if(|(key, _)| FamilyKey::parse(key).name == name)
            {
                found.push((FamilyKey::parse(key), &**metadata));
            }
            let visible = self.visible(&found)?;
            if !visible.is_empty() && !each(name, &visible)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first metadata of a family.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn first(self, name: &str) -> Result<Option<&'a Metadata>> {
        let mut found = Vec::new();
        let from_name = (Bound::Included(name), Bound::Unbounded);
        for (key, metadata) in self.families.range::<str, _>(from_name) {
            let key = FamilyKey::parse(key);
            if key.name != name {
                break;
            }
            found.push((key, &**metadata));
        }
        Ok(self.visible(&found)?.first().copied())
    }

    /// Returns the different metadata of a family that the request sees: all for a request without
    /// tenant, else those of the tenant, or if there are none those of senders without tenant.
    fn visible(self, found: &[(FamilyKey<'_>, &'a Metadata)]) -> Result<Vec<&'a Metadata>> {
        let mut own = Vec::new();
        let mut others = Vec::new();
        for (key, metadata) in found {
            let is_own = !key.tenant.is_empty() && self.passes(key)?;
            let list = if is_own { &mut own } else { &mut others };
            let is_visible = is_own || key.tenant.is_empty();
            if is_visible && !list.contains(metadata) {
                list.push(*metadata);
            }
        }
        if self.ctx.restriction().is_empty() {
            others.retain(|metadata| !own.contains(metadata));
            others.extend(own);
            return Ok(others);
        }
        Ok(if own.is_empty() { others } else { own })
    }

    /// Returns `true` if the labels of a tenant pass the matchers of the request. The others apply
    /// to series.
    fn passes(self, key: &FamilyKey<'_>) -> Result<bool> {
        for matcher in self.ctx.restriction() {
            let label = key.tenant.iter().find(|(name, _)| *name == matcher.name());
            if let Some((_, value)) = label
                && !matcher.matches_in(self.ctx, value)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_context::QueryContext;
    use varve_model::{Matcher, TenantLabels};

    use super::*;

    /// A tenant changed what another one had said about a metric.
    #[test]
    fn tenants_see_their_own_metadata() {
        let none = TenantLabels::default();
        let [a, b] =
            ["a", "b"].map(|team| TenantLabels::new(&[("team".to_owned(), team.to_owned())]));
        let mut families = Families::new();
        for (name, tenant, help) in [
            ("up", &a, "of a"),
            ("up", &b, "of b"),
            ("up", &none, "of none"),
            ("up_time", &none, "of none"),
            ("up_time", &b, "of none"),
        ] {
            let metadata = Metadata {
                help: help.to_owned(),
                ..Metadata::default()
            };
            let key = FamilyKey::text(name, tenant);
            families.insert(Arc::from(&*key), Arc::new(metadata));
        }
        let check = |restriction: &[Matcher], expect: &[(&str, &[&str])]| {
            let ctx = ReadContext::restricted(QueryContext::unbounded(), restriction.into());
            let visible = VisibleFamilies::new(&families, &ctx);
            let mut found = Vec::new();
            visible
                .visit(|name, all| {
                    let helps: Vec<_> = all.iter().map(|metadata| &*metadata.help).collect();
                    let first = visible.first(name)?.map(|metadata| &*metadata.help);
                    assert_eq!(first, helps.first().copied());
                    found.push((name, helps));
                    Ok(true)
                })
                .unwrap();
            let expect: Vec<_> = expect
                .iter()
                .map(|(name, helps)| (*name, helps.to_vec()))
                .collect();
            assert_eq!(found, expect, "{restriction:?}");
            assert!(visible.first("u").unwrap().is_none());
        };
        check(
            &[],
            &[
                ("up", &["of none", "of a", "of b"]),
                ("up_time", &["of none"]),
            ],
        );
        check(
            &[Matcher::equal("team", "a")],
            &[("up", &["of a"]), ("up_time", &["of none"])],
        );
        check(
            &[Matcher::equal("team", "c")],
            &[("up", &["of none"]), ("up_time", &["of none"])],
        );
    }
}
