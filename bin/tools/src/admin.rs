//! `varve admin`: administration of a running server, over its API.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use varve_client::encode_form;

use crate::server_args::ServerArgs;
use crate::time::parse_time_ms;

/// `varve admin ...`.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Create a snapshot below `snapshots` in the data directory of the server, and print its name
    Snapshot(SnapshotArgs),
    /// Delete the samples of matching series
    Delete(DeleteArgs),
    /// Remove deleted samples from disk
    CleanTombstones(ServerArgs),
    /// Import the blocks that `varve tsdb import` has left for the server
    Import(AdminImportArgs),
    /// Confirm that retention may remove the many blocks that it holds back
    ConfirmRetention(ServerArgs),
    /// Flush the WAL to blocks and merge all blocks
    Compact(ServerArgs),
    /// Reload the configuration; the server needs --web.enable-lifecycle
    Reload(ServerArgs),
}

/// Arguments of `varve admin snapshot`.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Format of the blocks
    #[arg(long, value_name = "FORMAT", default_value = "varve")]
    format: SnapshotFormat,

    /// Leave out samples that are not in blocks yet
    #[arg(long)]
    skip_head: bool,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SnapshotFormat {
    Varve,
    Prometheus,
}

/// Arguments of `varve admin delete`.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Selector of series; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    selectors: Vec<String>,

    /// Oldest time: RFC 3339, Unix seconds or milliseconds, or -1h [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    start: Option<i64>,

    /// Newest time [default: the newest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    end: Option<i64>,
}

/// Arguments of `varve admin import`.
#[derive(Debug, Clone, Args)]
pub struct AdminImportArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Import also blocks that are older than the retention, which removes them
    #[arg(long)]
    expired: bool,
}

/// Runs `varve admin ...`.
///
/// # Errors
/// If the server cannot be reached, or rejects the request.
pub fn run(command: &AdminCommand) -> Result<()> {
    match command {
        AdminCommand::Snapshot(args) => snapshot(args),
        AdminCommand::Delete(args) => delete(args),
        AdminCommand::CleanTombstones(server) => {
            post(server, "/api/v1/admin/tsdb/clean_tombstones", &[])?;
            println!("deleted samples are removed from disk");
            Ok(())
        }
        AdminCommand::Import(args) => import(args),
        AdminCommand::ConfirmRetention(server) => {
            post(server, "/api/v1/admin/tsdb/confirm_retention", &[])?;
            println!(
                "retention is confirmed: blocks that are too old are removed, if there are any"
            );
            Ok(())
        }
        AdminCommand::Compact(server) => {
            post(server, "/api/v1/admin/tsdb/compact", &[])?;
            println!("the WAL is flushed, and all blocks are merged");
            Ok(())
        }
        AdminCommand::Reload(server) => {
            post(server, "/-/reload", &[])?;
            println!("the configuration is reloaded");
            Ok(())
        }
    }
}

fn delete(args: &DeleteArgs) -> Result<()> {
    let mut params = Vec::new();
    for selector in &args.selectors {
        params.push(("match[]", selector.clone()));
    }
    for (name, time_ms) in [("start", args.start), ("end", args.end)] {
        if let Some(time_ms) = time_ms {
            params.push((name, (time_ms as f64 / 1000.0).to_string()));
        }
    }
    // The deletion does not depend on it: a search may be refused, or take too long.
    let one = format!("{}&limit=1", encode_form(&params));
    let found = args.server.client()?.post_data("/api/v1/series", &one);
    post(&args.server, "/api/v1/admin/tsdb/delete_series", &params)?;
    if found.is_ok_and(|found| found.as_array().is_some_and(Vec::is_empty)) {
        println!("no series matched before the deletion");
    } else {
        println!("deleted; varve admin clean-tombstones frees the space");
    }
    Ok(())
}

fn snapshot(args: &SnapshotArgs) -> Result<()> {
    let mut params = Vec::new();
    if args.format == SnapshotFormat::Prometheus {
        params.push(("format", "prometheus".to_owned()));
    }
    if args.skip_head {
        params.push(("skip_head", "true".to_owned()));
    }
    let created = args
        .server
        .client()?
        .post_data("/api/v1/admin/tsdb/snapshot", &encode_form(&params))?;
    println!("{}", created["name"].as_str().unwrap_or_default());
    Ok(())
}

fn import(args: &AdminImportArgs) -> Result<()> {
    let mut params = Vec::new();
    if args.expired {
        params.push(("expired", "true".to_owned()));
    }
    let imported = args
        .server
        .client()?
        .post_data("/api/v1/admin/tsdb/import", &encode_form(&params))?;
    match imported["blocks"].as_u64() {
        Some(0) => println!("there is no block to import"),
        Some(1) => println!("1 block is imported"),
        n => println!("{} blocks are imported", n.unwrap_or_default()),
    }
    Ok(())
}

/// Sends a form and ignores the body of the response.
fn post(server: &ServerArgs, path: &str, params: &[(&str, String)]) -> Result<()> {
    let mut client = server.client()?;
    let response = client.post_form(path, &encode_form(params))?;
    client.ensure_success(path, &response)
}
