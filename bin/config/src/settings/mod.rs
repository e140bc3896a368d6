//! The settings that a server runs with: its flags and its configuration file, resolved and checked,
//! one struct for each part of the server. docs/config.md describes the flags that these values come
//! from.
//!
//! All defaults of limits are here and in [`flags`](crate::flags); the parts of a server have none.

#[cfg(test)]
mod tests;

mod automatic;
mod features;
mod query;
mod rules;
mod store;
mod web;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use varve_objstore::uploads::UploadOptions;
use varve_system::log;
use varve_system::machine::Memory;
use varve_system::quantity::{print_duration, print_size};
use varve_tsdb::retention::RetentionRule;

pub use query::{QuerySettings, RemoteReadSettings};
pub use rules::{NotifierOptions, RulesOptions};
pub use store::{Retention, StoreOptions};
pub use web::{ResponseLimits, WebSettings};
pub use write::WriteSettings;

use crate::file::Config;
use crate::flags::ServeArgs;
use features::{AUTO_RELOAD_FEATURE, has_feature};
use store::RetentionFlags;

/// All settings of a server.
#[derive(Debug)]
pub struct Resolved {
    /// Settings that stay in force while the server runs.
    pub settings: ServerSettings,
    /// Options of the store.
    pub store: StoreOptions,
    /// Settings of uploads, if they are enabled.
    pub uploads: Option<UploadOptions>,
}

/// Settings that stay in force while the server runs.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Whether changed files are reloaded.
    pub auto_reload: bool,
    /// How often files are compared.
    pub auto_reload_interval: Duration,
    /// How often the server stores its own metrics. 0 is never.
    pub self_scrape_interval: Duration,
    /// Percentage of the memory above which queries are refused.
    pub memory_refuse_at: u64,
    /// Settings of the HTTP API and of connections.
    pub web: WebSettings,
    /// Settings of queries and metadata requests.
    pub query: QuerySettings,
    /// Settings of remote reads.
    pub remote_read: RemoteReadSettings,
    /// Settings of write requests.
    pub write: WriteSettings,
    /// Options of notifications to Alertmanagers.
    pub notifier: NotifierOptions,
    /// Options of rules.
    pub rules: RulesOptions,
    /// Age from which local blocks are removed that are in the bucket. Then there is no other
    /// retention.
    pub local_retention: Option<Duration>,
    retention: RetentionFlags,
    /// `--log.level`.
    log_level: log::Level,
    /// Every flag with its value on the command line.
    flags: BTreeMap<String, String>,
}

/// The keys of the configuration file that set the same as a flag. The key prevails.
#[cfg(test)]
const KEYS_OF_FLAGS: [(&str, &str); 3] = [
    ("log.level", "runtime.log_level"),
    (RETENTION_TIME, RETENTION_TIME),
    (RETENTION_SIZE, RETENTION_SIZE),
];

const RETENTION_TIME: &str = "storage.tsdb.retention.time";
const RETENTION_SIZE: &str = "storage.tsdb.retention.size";

impl ServerSettings {
    /// Returns the retention of a configuration, with the flags as defaults. With
    /// `--storage.tsdb.retention.local-after-upload` there is none: uploads remove blocks.
    pub fn retention(&self, config: &Config) -> Retention {
        match self.local_retention {
            Some(_) => Retention::default(),
            None => self.retention.with(&config.storage.tsdb.retention),
        }
    }

    /// Returns every flag with the value in force, which the configuration may have set. Durations
    /// and sizes are printed as Prometheus does.
    pub fn flags_in_force(&self, config: &Config) -> BTreeMap<String, String> {
        let retention = self.retention(config);
        let log_level = config.runtime.log_level.unwrap_or(self.log_level);
        let mut flags = self.flags.clone();
        flags.insert(RETENTION_TIME.to_owned(), print_duration(retention.time));
        flags.insert(RETENTION_SIZE.to_owned(), print_size(retention.size));
        flags.insert("log.level".to_owned(), log_level.to_string());
        flags
    }

    /// Returns the configuration with the flags as defaults of its keys.
    pub fn config_in_force(&self, config: &Config) -> Config {
        let Retention {
            time,
            size,
            percentage,
        } = self.retention(config);
        let mut config = config.clone();
        let section = &mut config.storage.tsdb.retention;
        section.time = Some(time);
        section.size = Some(size).filter(|&size| size > 0);
        section.percentage = Some(percentage).filter(|&percentage| percentage > 0.0);
        config.runtime.log_level.get_or_insert(self.log_level);
        config
    }

    /// Returns the retention rules of a configuration. With
    /// `--storage.tsdb.retention.local-after-upload` there are none.
    ///
    /// # Errors
    /// If the time of a rule exceeds the time of [`ServerSettings::retention`].
    pub fn retention_rules(&self, config: &Config) -> Result<Vec<RetentionRule>> {
        let rules = config
            .storage
            .tsdb
            .retention
            .rules(self.retention(config).time)?;
        if rules.is_empty() || self.local_retention.is_none() {
            return Ok(rules);
        }
        tracing::warn!(
            "storage.tsdb.retention.rules have no effect together with --storage.tsdb.retention.local-after-upload"
        );
        Ok(Vec::new())
    }
}

/// Turns flags and the configuration file into the settings of a server, whose process may use
/// `memory` and open this many files. `flags` are the values that the API shows.
///
/// # Errors
/// If the configuration of the bucket is invalid, the server has no external labels for it, or a
/// retention rule exceeds the retention.
pub fn resolve(
    args: &ServeArgs,
    config: &Config,
    memory: &Memory,
    open_files: Option<u64>,
    mut flags: BTreeMap<String, String>,
    is_tls: bool,
) -> Result<Resolved> {
    let features = features::enabled(args);
    let web = web::web(args, open_files, memory.share(1, 1), is_tls);
    if web.connections_max < args.max_connections {
        flags.insert(
            "web.max-connections".to_owned(),
            web.connections_max.to_string(),
        );
    }
    let auto_reload = args.config_auto_reload || has_feature(args, AUTO_RELOAD_FEATURE);
    flags.insert("config.auto-reload".to_owned(), auto_reload.to_string());
    let prefix = web.route_prefix.to_string();
    flags.insert("web.route-prefix".to_owned(), prefix);
    let query = query::query(args, memory, features);

    let settings = ServerSettings {
        data_dir: args.tsdb_path.clone(),
        auto_reload,
        auto_reload_interval: args.config_auto_reload_interval,
        self_scrape_interval: args.self_scrape_interval,
        memory_refuse_at: args.memory_refuse_at,
        remote_read: query::remote_read(args),
        write: write::write(args, memory.share(1, 1)),
        notifier: rules::notifier(args),
        rules: rules::rules(&args.rules, &query, web.external_url.as_str()),
        local_retention: args.objstore.local_retention,
        retention: RetentionFlags::new(args),
        log_level: args.log_level,
        web,
        query,
        flags,
    };
    // Checked before the store is opened, which may take long.
    let retention_time = settings.retention(config).time;
    config.storage.tsdb.retention.rules(retention_time)?;

    Ok(Resolved {
        settings,
        store: store::store(args, memory, config, features),
        uploads: store::uploads(args, config)?,
    })
}
