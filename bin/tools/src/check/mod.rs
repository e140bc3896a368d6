//! `varve check`: configuration, rules, metrics and servers, with the output and exit codes of
//! promtool.
//!
//! Errors go to standard error, the rest to standard output. Exit codes: 0 valid, 1 errors, 3 lint
//! errors.

mod args;
mod config;
mod families;
mod metrics;
mod rules;
mod server;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use varve_http::web_config::WebConfig;
use varve_system::printing::{error_chain, failure};

pub use args::CheckCommand;

use args::LintArgs;

/// Maximum size of a file and of standard input.
const INPUT_SIZE_MAX: u64 = 256 << 20;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Valid,
    /// Lint errors only.
    Lint,
    Invalid,
}

/// Runs `varve check ...`.
pub fn run(command: &CheckCommand) -> ExitCode {
    let verdict = match command {
        CheckCommand::Config(args) => Ok(config::check(args)),
        CheckCommand::WebConfig(args) => Ok(web_config(&args.files)),
        CheckCommand::Rules(args) => Ok(rules::check(args)),
        CheckCommand::Metrics(args) => metrics::check(args),
        CheckCommand::Healthy(args) => server::check(args, "/-/healthy"),
        CheckCommand::Ready(args) => server::check(args, "/-/ready"),
    };
    match verdict {
        Ok(Verdict::Valid) => ExitCode::SUCCESS,
        Ok(Verdict::Lint) => ExitCode::from(3),
        Ok(Verdict::Invalid) => ExitCode::FAILURE,
        Err(error) => failure(&error),
    }
}

fn web_config(files: &[std::path::PathBuf]) -> Verdict {
    let check = |file: &std::path::PathBuf| match WebConfig::load(Some(file)) {
        Ok(_) => {
            eprintln!("{} SUCCESS", file.display());
            Verdict::Valid
        }
        Err(error) => {
            eprintln!("{} FAILED: {}", file.display(), error_chain(&error));
            Verdict::Invalid
        }
    };
    files.iter().map(check).max().unwrap_or(Verdict::Valid)
}

impl LintArgs {
    /// Ignores lint errors unless `--lint-fatal` is set.
    fn apply_severity(&self, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Lint && !self.lint_fatal {
            Verdict::Valid
        } else {
            verdict
        }
    }

    /// Returns `true` if a lint is enabled. [`Self::warn`] reports unknown lints.
    fn is_on(&self, option: &str) -> bool {
        let mut given = self.lint.split(',');
        !self.lint.split(',').any(|given| given == "none")
            && given.any(|given| given == option || given == "all")
    }

    /// Warns about unknown lints.
    fn warn(&self, known: &[&str]) {
        let is_known = |option: &&str| {
            option.is_empty() || matches!(*option, "all" | "none") || known.contains(option)
        };
        for option in self.lint.split(',').filter(|option| !is_known(option)) {
            println!("WARNING: unknown lint option: {option:?}");
        }
    }
}

/// Reads a text file.
fn read(path: &std::path::Path) -> Result<String> {
    let size = std::fs::metadata(path)?.len();
    ensure!(
        size <= INPUT_SIZE_MAX,
        "{size} bytes exceed the limit of {INPUT_SIZE_MAX}"
    );
    Ok(std::fs::read_to_string(path)?)
}
