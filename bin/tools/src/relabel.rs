//! `varve relabel`: administration of the relabel rules of a server.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use varve_client::escape;

use super::server_args::{ServerArgs, not_a_server};

/// `varve relabel ...`.
#[derive(Debug, Subcommand)]
pub enum RelabelCommand {
    /// Enable a rule that a query has disabled, or forget the query that would have disabled it
    Enable(EnableArgs),
}

/// Arguments of `varve relabel enable`.
#[derive(Debug, Clone, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "The server needs --web.enable-admin-api."
)]
pub struct EnableArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Name of the rule
    #[arg(value_name = "NAME", value_parser = not_a_server)]
    pub(crate) name: String,
}

/// Runs `varve relabel ...`.
///
/// # Errors
/// If the server cannot be reached or has no such rule.
pub fn run(RelabelCommand::Enable(args): &RelabelCommand) -> Result<()> {
    let name = &args.name;
    let form = format!("name={}", escape(name));
    let enabled = args
        .server
        .client()?
        .post_data("/api/v1/admin/relabel/enable", &form)?;
    let was_used = enabled
        .get("wasUsed")
        .and_then(serde_json::Value::as_bool)
        .context("parse the response")?;
    let is_dry_run = enabled.get("state").is_some_and(|state| state == "dry_run");
    println!("rule {name} {}", outcome(was_used, is_dry_run));
    Ok(())
}

fn outcome(was_used: bool, is_dry_run: bool) -> &'static str {
    match (was_used, is_dry_run) {
        (true, false) => "is enabled",
        (true, true) => "stays in dry_run; the query that would have disabled it is forgotten",
        (false, false) => "was not disabled",
        (false, true) => {
            "stays in dry_run; no query would have disabled it. To enforce it, change its state in the configuration"
        }
    }
}
