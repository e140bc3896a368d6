//! The expressions of rules and dashboards: from files, and from a Grafana.

use std::collections::BTreeSet;

use anyhow::Result;
use varve_advise::counted;
use varve_advise::needs::{Dashboards, Needs};

use super::args::ExpressionArgs;
use super::{files, grafana};
use crate::server_args::AccessArgs;

/// Reads all expressions into `needs`. Returns notes about what was ignored.
///
/// # Errors
/// If an input cannot be read. One that cannot be parsed is among the problems of `needs`.
pub(super) fn read(
    args: &ExpressionArgs,
    access: &AccessArgs,
    needs: &mut Needs,
) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for file in files::read(&args.rules, &[".yaml", ".yml", ".rules"])? {
        needs.add_rule_file(&file.name, &file.text);
        names.insert(file.name);
    }
    let mut dashboards = Dashboards::new(needs);
    for file in files::read(&args.dashboards, &[".json", ".yaml", ".yml"])? {
        dashboards.read(&file.name, &file.text);
    }
    if let Some(url) = &args.grafana {
        let mut client = access.client_of(url, args.grafana_token_file.as_deref())?;
        grafana::read(&mut client, &mut dashboards)?;
    }
    let ignored: Vec<_> = dashboards
        .finish()
        .into_iter()
        .filter(|name| !names.contains(name))
        .collect();
    Ok(ignored
        .first()
        .map(|first| {
            let files = counted(ignored.len(), "file");
            format!(
                "--dashboards ignores the rules in {files}, the first is {first:?}: pass them with --rules"
            )
        })
        .into_iter()
        .collect())
}
