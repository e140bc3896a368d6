//! Metadata of metric families as a request sees it: each tenant may have described a family.

use std::ops::Bound;

use varve_model::metadata::{Families, FamilyKey, Metadata};
use varve_tsdb::ReadContext;

use crate::error::Result;

/// Families between two checks of the deadline.
const FAMILIES_PER_CHECK: usize = 64;

/// The metadata that a request sees: all for a request without tenant. A tenant sees that of each
/// tenant whose series it may all read, or if there is none for a family that of senders without
/// tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleFamilies<'a> {
    families: &'a Families,
    ctx: &'a ReadContext,
}

/// The metadata of one family that a request may see.
#[derive(Debug, Default)]
struct Visible<'a> {
    /// That of senders without tenant, then that of tenants, without repetitions.
    all: Vec<&'a Metadata>,
    /// Whether the first one is that of senders without tenant.
    has_shared: bool,
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
        let mut keys = self.families.iter().enumerate().peekable();
        let mut visible = Visible::default();
        while let Some((_, (first, _))) = keys.peek() {
            let name = FamilyKey::parse(first).name;
            visible.clear();
            while let Some((key_idx, (key, metadata))) =
                keys.next_if(|(_, (key, _))| FamilyKey::parse(key).name == name)
            {
                self.ctx.check_every(FAMILIES_PER_CHECK, key_idx)?;
                self.add(FamilyKey::parse(key), metadata, &mut visible)?;
            }
            let shown = self.shown(&visible);
            if !shown.is_empty() && !each(name, shown)? {
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
        let mut visible = Visible::default();
        let from_name = (Bound::Included(name), Bound::Unbounded);
        let keys = self.families.range::<str, _>(from_name);
        for (key_idx, (key, metadata)) in keys.enumerate() {
            let key = FamilyKey::parse(key);
            if key.name != name {
                break;
            }
            self.ctx.check_every(FAMILIES_PER_CHECK, key_idx)?;
            self.add(key, metadata, &mut visible)?;
        }
        Ok(self.shown(&visible).first().copied())
    }

    /// Adds metadata that the request may see. That of senders without tenant comes first.
    fn add(
        self,
        key: FamilyKey<'_>,
        metadata: &'a Metadata,
        visible: &mut Visible<'a>,
    ) -> Result<()> {
        if key.tenant.is_empty() {
            visible.has_shared = true;
            visible.all.push(metadata);
            return Ok(());
        }
        if !self.ctx.may_read_all(|label| key.tenant_label(label))? {
            return Ok(());
        }
        // A tenant shows its own also if it repeats the shared one.
        let n_shared = usize::from(visible.has_shared && self.is_of_tenant());
        if !visible.all[n_shared..].contains(&metadata) {
            visible.all.push(metadata);
        }
        Ok(())
    }

    /// Returns what the request sees.
    fn shown<'v>(self, visible: &'v Visible<'a>) -> &'v [&'a Metadata] {
        let n_shared = usize::from(visible.has_shared);
        if self.is_of_tenant() && visible.all.len() > n_shared {
            return &visible.all[n_shared..];
        }
        &visible.all
    }

    fn is_of_tenant(self) -> bool {
        !self.ctx.restriction().is_empty()
    }
}

impl Visible<'_> {
    fn clear(&mut self) {
        self.all.clear();
        self.has_shared = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_context::{Interrupt, QueryContext};
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
        // What tenants have said does not tell the value of a label that they do not set.
        check(
            &[Matcher::equal("team", "a"), Matcher::equal("zone", "z")],
            &[("up", &["of none"]), ("up_time", &["of none"])],
        );
        let interrupted = ReadContext::unbounded();
        interrupted.interrupt(Interrupt::Canceled);
        let visible = VisibleFamilies::new(&families, &interrupted);
        assert!(visible.visit(|_, _| Ok(true)).is_err());
        assert!(visible.first("up").is_err());
    }
}
