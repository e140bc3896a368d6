//! Discovery: target groups from files and DNS names. A source that fails keeps its known targets.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use varve_config::file::alerting::{AlertmanagerConfig, DnsType, TargetGroup};
use varve_system::machine::files::read_text;

/// Interval at which sources are checked. Files are read at least as often, so that a change takes
/// effect soon.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time of a DNS request.
const DNS_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of files of a pattern, and their maximum size.
const FILES_MAX: usize = 100;
const FILE_SIZE_MAX: u64 = 1 << 20;

/// A source, with the targets that it has found.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) source: Source,
    pub(super) groups: Vec<TargetGroup>,
    due: Instant,
}

/// The origin of targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    kind: SourceKind,
    interval: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SourceKind {
    /// A pattern of paths.
    Files(PathBuf),
    Dns {
        name: String,
        is_ipv6: bool,
        port: u16,
    },
}

impl Discovery {
    /// Returns the sources of a configuration. All of them are due.
    pub(super) fn all(config: &AlertmanagerConfig) -> Vec<Self> {
        let files = config.file_sd_configs.iter().flat_map(|discovery| {
            let interval = discovery.refresh_interval.min(INTERVAL);
            discovery.files.iter().cloned().map(move |pattern| Source {
                kind: SourceKind::Files(pattern),
                interval,
            })
        });
        let dns = config.dns_sd_configs.iter().flat_map(|discovery| {
            discovery.names.iter().map(move |name| Source {
                kind: SourceKind::Dns {
                    name: name.clone(),
                    is_ipv6: discovery.kind == DnsType::Aaaa,
                    port: discovery.port,
                },
                interval: discovery.refresh_interval,
            })
        });
        files
            .chain(dns)
            .map(|source| Self {
                source,
                groups: Vec::new(),
                due: Instant::now(),
            })
            .collect()
    }

    /// Returns the source if it is due.
    pub(super) fn take_due(&mut self) -> Option<Source> {
        let now = Instant::now();
        if self.due > now {
            return None;
        }
        self.due = now + self.source.interval;
        Some(self.source.clone())
    }
}

impl Source {
    pub(super) async fn find(&self) -> Result<Vec<TargetGroup>> {
        match self.kind.clone() {
            SourceKind::Files(pattern) => {
                tokio::task::spawn_blocking(move || read_target_files(&pattern)).await?
            }
            SourceKind::Dns {
                name,
                is_ipv6,
                port,
            } => {
                let found = tokio::time::timeout(
                    DNS_TIMEOUT,
                    tokio::net::lookup_host((name.as_str(), port)),
                )
                .await;
                let found = found.map_err(|_| anyhow!("no DNS response within {DNS_TIMEOUT:?}"))?;
                let addresses = found.with_context(|| format!("resolve {name:?}"))?;
                let targets = addresses
                    .filter(|address| address.is_ipv6() == is_ipv6)
                    .map(|address| address.to_string());
                let labels = [("__meta_dns_name".to_owned(), name.clone())].into();
                Ok(vec![TargetGroup {
                    targets: targets.collect(),
                    labels,
                }])
            }
        }
    }
}

/// Reads the target groups of all files that match a pattern.
///
/// # Errors
/// If there are too many files, or one cannot be read or is invalid.
fn read_target_files(pattern: &Path) -> Result<Vec<TargetGroup>> {
    let mut groups = Vec::new();
    for (idx, path) in glob::glob(&pattern.to_string_lossy())?.enumerate() {
        ensure!(
            idx < FILES_MAX,
            "{pattern:?} matches more than {FILES_MAX} files"
        );
        let path = path?;
        let text = read_text(&path, FILE_SIZE_MAX)?;
        let read: Option<Vec<TargetGroup>> =
            serde_yaml_ng::from_str(&text).with_context(|| format!("{path:?}"))?;
        let path = path.to_string_lossy().into_owned();
        groups.extend(read.unwrap_or_default().into_iter().map(|mut group| {
            group
                .labels
                .insert("__meta_filepath".to_owned(), path.clone());
            group
        }));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use varve_config::file::Config;

    use super::*;

    fn find(alertmanager: &str) -> Result<Vec<TargetGroup>> {
        let config =
            Config::parse(&format!("alerting: {{alertmanagers: [{alertmanager}]}}")).unwrap();
        let mut sources = Discovery::all(&config.alerting.alertmanagers[0]);
        let due = sources[0].take_due().unwrap();
        let again = sources[0].take_due();
        assert!(again.is_none(), "it is due once per interval");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(due.find())
    }

    #[test]
    fn files_are_read_in_yaml_and_json() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("a.yml"),
            "- {targets: ['a:1', 'b:1'], labels: {x: y}}\n- targets: ['c:1']",
        )
        .unwrap();
        std::fs::write(dir.path().join("b.json"), "[{\"targets\": [\"d:1\"]}]").unwrap();
        let find = |pattern| {
            find(&format!(
                "file_sd_configs: [{{files: ['{}/{pattern}']}}]",
                dir.path().display()
            ))
        };
        let groups = find("*.yml").unwrap();
        assert_eq!(
            (
                groups.len(),
                &*groups[0].targets[1],
                &*groups[0].labels["x"]
            ),
            (2, "b:1", "y")
        );
        assert!(groups[1].labels["__meta_filepath"].ends_with("/a.yml"));
        assert_eq!(find("b.json").unwrap()[0].targets, ["d:1"]);
        assert_eq!(find("c*.yml").unwrap(), []);
        std::fs::write(dir.path().join("c.yml"), "- {target: [x]}").unwrap();
        assert!(format!("{:#}", find("c*.yml").unwrap_err()).contains("unknown field `target`"));
        std::fs::write(
            dir.path().join("c.yml"),
            " ".repeat(FILE_SIZE_MAX as usize + 1),
        )
        .unwrap();
        assert!(
            find("c*.yml")
                .unwrap_err()
                .to_string()
                .contains("1048577 bytes, more than 1048576")
        );
        for i in 0..=FILES_MAX {
            std::fs::write(dir.path().join(format!("d{i}.yml")), "").unwrap();
        }
        assert!(
            find("d*.yml")
                .unwrap_err()
                .to_string()
                .contains("matches more than 100 files")
        );
    }

    #[test]
    fn addresses_of_dns_names_are_selected_by_type() {
        let find = |name, kind| {
            find(&format!(
                "dns_sd_configs: [{{names: ['{name}'], type: {kind}, port: 9093}}]"
            ))
        };
        assert_eq!(
            find("127.0.0.1", "A").unwrap()[0].targets,
            ["127.0.0.1:9093"]
        );
        assert_eq!(find("::1", "AAAA").unwrap()[0].targets, ["[::1]:9093"]);
        assert_eq!(find("127.0.0.1", "AAAA").unwrap()[0].targets.len(), 0);
        assert_eq!(
            find("127.0.0.1", "A").unwrap()[0].labels["__meta_dns_name"],
            "127.0.0.1"
        );
        assert!(
            find("nowhere.invalid", "A")
                .unwrap_err()
                .to_string()
                .contains("resolve \"nowhere.invalid\"")
        );
    }
}
