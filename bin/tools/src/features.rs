//! `--enable-feature` of the tools that read rules: the parts of PromQL that expressions may use,
//! as for the server.

use clap::Args;
use varve_promql::Features;

/// The flag, which is promtool's.
#[derive(Debug, Clone, Args)]
pub(super) struct FeatureArgs {
    /// Comma-separated feature names that the server enables: promql-experimental-functions, ...
    #[arg(
        long = "enable-feature",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    names: Vec<String>,
}

impl FeatureArgs {
    /// Returns the features, and warns of names without influence on PromQL.
    pub(super) fn features(&self) -> Features {
        let mut features = Features::default();
        for name in self
            .names
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
        {
            if !features.enable(name) {
                println!("WARNING: unknown feature: {name:?}");
            }
        }
        features
    }
}
