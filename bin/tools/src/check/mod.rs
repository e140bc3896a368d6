//! `varve check`: configuration, rules, metrics and servers, with the output and exit codes of
//! promtool.
//!
//! Errors go to standard error, the rest to standard output. Exit codes: 0 valid, 1 errors, 3 lint
//! errors.

mod args;
mod config;
mod families;
mod input;
mod metrics;
mod rules;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use varve_config::web::WebConfig;
use varve_system::printing::{error_chain, failure};

pub use args::CheckCommand;

use crate::server_args::ServerArgs;
use verdict::Verdict;

/// Runs `varve check ...`.
pub fn run(command: &CheckCommand) -> ExitCode {
    let verdict = match command {
        CheckCommand::Config(args) => Ok(config::check(args)),
        CheckCommand::WebConfig(args) => Ok(web_config(&args.files)),
        CheckCommand::Rules(args) => Ok(rules::check(args)),
        CheckCommand::Metrics(args) => metrics::check(args),
        CheckCommand::Healthy(args) => server(args, "/-/healthy"),
        CheckCommand::Ready(args) => server(args, "/-/ready"),
    };
    match verdict {
        Ok(Verdict::Valid) => ExitCode::SUCCESS,
        Ok(Verdict::Lint) => ExitCode::from(3),
        Ok(Verdict::Invalid) => ExitCode::FAILURE,
        Err(error) => failure(&error),
    }
}

fn web_config(files: &[PathBuf]) -> Verdict {
    let mut verdict = Verdict::Valid;
    for file in files {
        match WebConfig::read(file) {
            Ok(_) => eprintln!("{} SUCCESS", file.display()),
            Err(error) => {
                eprintln!("{} FAILED: {}", file.display(), error_chain(&error));
                verdict = Verdict::Invalid;
            }
        }
    }
    verdict
}

/// Requests the health or readiness of a server.
fn server(args: &ServerArgs, path: &str) -> Result<Verdict> {
    let mut client = args.client()?;
    let response = client.get(path)?;
    if response.status != 200 {
        bail!(
            "check failed: URL={}{path}, status={}",
            client.url(),
            response.status
        );
    }
    eprintln!("  SUCCESS:  {}", String::from_utf8_lossy(&response.body));
    Ok(Verdict::Valid)
}
