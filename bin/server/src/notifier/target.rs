//! Builds the URLs of Alertmanagers from targets, as in Prometheus.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use varve_client::Url;
use varve_config::file::alerting::{AlertmanagerConfig, Scheme, TargetGroup};
use varve_ingest::relabel::Relabeling;
use varve_model::Labels;

/// Labels with the parts of a URL.
const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const PATH: &str = "__alerts_path__";

/// Maximum number of Alertmanagers of an entry of `alerting.alertmanagers`. Each has a task and a
/// queue.
pub(super) const ALERTMANAGERS_MAX: usize = 1000;

/// The URLs of targets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The Alertmanagers, which are distinct.
    pub(super) active: Vec<String>,
    /// Those that a relabel rule drops.
    pub(super) dropped: Vec<String>,
}

/// Returns the targets of groups. Logs invalid ones.
pub(super) fn find<'a>(
    config: &AlertmanagerConfig,
    relabeling: &Relabeling,
    groups: impl Iterator<Item = &'a TargetGroup>,
) -> Targets {
    let mut targets = Targets::default();
    for (group, target) in
        groups.flat_map(|group| group.targets.iter().map(move |target| (group, target)))
    {
        let (url, list) = match url(config, relabeling, group, target) {
            Ok((url, true)) if targets.active.contains(&url) => continue,
            Ok((url, true)) => (url, &mut targets.active),
            Ok((url, false)) => (url, &mut targets.dropped),
            Err(error) => {
                tracing::error!(
                    target,
                    error = format!("{error:#}"),
                    "Creating a discovered Alertmanager failed"
                );
                continue;
            }
        };
        if list.len() < ALERTMANAGERS_MAX {
            list.push(url);
        } else {
            tracing::error!(
                target,
                "More than {ALERTMANAGERS_MAX} Alertmanagers, ignoring one"
            );
        }
    }
    targets
}

/// Returns the URL of a target, and `true` if the relabel rules keep it.
fn url(
    config: &AlertmanagerConfig,
    relabeling: &Relabeling,
    group: &TargetGroup,
    target: &str,
) -> Result<(String, bool)> {
    let scheme = if config.scheme == Scheme::Https {
        "https"
    } else {
        "http"
    };
    let path = alerts_path(&config.path_prefix);
    let mut labels: BTreeMap<&str, &str> =
        [(ADDRESS, target), (SCHEME, scheme), (PATH, &path)].into();
    // As in Prometheus, labels of the group replace scheme and path.
    labels.extend(
        group
            .labels
            .iter()
            .filter(|(name, _)| *name != ADDRESS)
            .map(|(n, v)| (n.as_str(), v.as_str())),
    );
    let labels = Labels::from_pairs(labels)?;
    let relabeled = relabeling.relabel(&labels)?;
    // The URL of a dropped target has the labels from before relabeling.
    let shown = relabeled.as_ref().unwrap_or(&labels);
    let label = |name| shown.get(name).unwrap_or_default();
    let address = label(ADDRESS);
    ensure!(
        relabeled.is_none() || !address.contains('/'),
        "{address:?} is not a valid hostname"
    );
    let url = format!("{}://{address}{}", label(SCHEME), label(PATH));
    if relabeled.is_some() {
        Url::parse(&url)
            .map_err(anyhow::Error::msg)
            .with_context(|| url.clone())?;
    }
    Ok((url, relabeled.is_some()))
}

/// Returns the path to which alerts are sent.
fn alerts_path(prefix: &str) -> String {
    let elements = prefix.split('/').filter(|element| !element.is_empty());
    elements
        .chain(["api", "v2", "alerts"])
        .fold(String::new(), |path, element| path + "/" + element)
}

#[cfg(test)]
mod tests {
    use varve_config::file::Config;

    use super::*;

    fn check(alertmanager: &str, active: &[&str], dropped: &[&str]) {
        let config =
            Config::parse(&format!("alerting: {{alertmanagers: [{alertmanager}]}}")).unwrap();
        let config = &config.alerting.alertmanagers[0];
        let got = find(
            config,
            &config.target_relabeling().unwrap(),
            config.static_configs.iter(),
        );
        assert_eq!(got.active, active);
        assert_eq!(got.dropped, dropped);
    }

    #[test]
    fn a_url_consists_of_scheme_address_and_path() {
        let targets = "static_configs: [{targets: ['a:1', 'b', 'a:1']}, {targets: ['[::1]:9093']}]";
        let expect = [
            "http://a:1/api/v2/alerts",
            "http://b/api/v2/alerts",
            "http://[::1]:9093/api/v2/alerts",
        ];
        check(&format!("{{{targets}}}"), &expect, &[]);
        let targets = "static_configs: [{targets: ['a:1']}]";
        for prefix in ["/prefix", "prefix//", "/prefix/"] {
            check(
                &format!("{{{targets}, scheme: https, path_prefix: {prefix}}}"),
                &["https://a:1/prefix/api/v2/alerts"],
                &[],
            );
        }
    }

    #[test]
    fn targets_are_relabeled() {
        let targets = "static_configs: [{targets: ['a:1', 'b:1', 'c d'], labels: {zone: z, __scheme__: https}}]";
        let keep = "{source_labels: [__address__, zone], regex: '(a:1|c d);z', action: keep}";
        let path = "{target_label: __alerts_path__, replacement: /x}";
        check(
            &format!("{{{targets}, relabel_configs: [{keep}, {path}]}}"),
            &["https://a:1/x"],
            &["https://b:1/api/v2/alerts"],
        );
    }

    #[test]
    fn the_number_of_alertmanagers_is_bounded() {
        let targets: Vec<_> = (0..ALERTMANAGERS_MAX + 1)
            .map(|i| format!("h:{}", i + 1))
            .collect();
        let group = TargetGroup {
            targets,
            ..TargetGroup::default()
        };
        let got = find(
            &AlertmanagerConfig::default(),
            &Relabeling::default(),
            [group].iter(),
        );
        assert_eq!(got.active.len(), ALERTMANAGERS_MAX);
    }
}
