//! `varve check`: configuration, rules, metrics and servers, with promtool's words and exit codes.
//!
//! What is wrong goes to the standard error, what was looked at and is right to the standard output. Exit codes: 0 sound, 1
//! errors, 3 what a linter minds, where that counts.

mod args;
mod config;
mod families;
mod metrics;
mod rule_file;
mod rules;
mod server;

use std::process::ExitCode;

use anyhow::{Result, ensure};

pub(crate) use args::CheckCommand;

use crate::http::web_config::WebConfig;
use crate::printing::told;
use args::LintArgs;

/// Most bytes of a file, and of the standard input.
const INPUT_SIZE_MAX: u64 = 256 << 20;

/// What a check ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Sound,
    /// What a linter minds and nothing else.
    Lint,
    Errors,
}

/// Runs `varve check ...`.
pub(crate) fn run(command: &CheckCommand) -> ExitCode {
    let verdict = match command {
        CheckCommand::Config(args) => Ok(config::check(args)),
        CheckCommand::WebConfig(args) => Ok(web_config(&args.files)),
        CheckCommand::Rules(args) => Ok(rules::check(args)),
        CheckCommand::Metrics(args) => metrics::check(args),
        CheckCommand::Healthy(args) => server::check(args, "/-/healthy"),
        CheckCommand::Ready(args) => server::check(args, "/-/ready"),
    };
    match verdict {
        Ok(Verdict::Sound) => ExitCode::SUCCESS,
        Ok(Verdict::Lint) => ExitCode::from(3),
        Ok(Verdict::Errors) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}", told(&error));
            ExitCode::FAILURE
        }
    }
}

fn web_config(files: &[std::path::PathBuf]) -> Verdict {
    let check = |file: &std::path::PathBuf| match WebConfig::load(Some(file)) {
        Ok(_) => {
            eprintln!("{} SUCCESS", file.display());
            Verdict::Sound
        }
        Err(error) => {
            eprintln!("{} FAILED: {}", file.display(), told(&error));
            Verdict::Errors
        }
    };
    files.iter().map(check).max().unwrap_or(Verdict::Sound)
}

impl LintArgs {
    /// Returns the verdict as the process ends with it: what a linter minds counts only if that is asked for.
    fn settle(&self, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Lint && !self.lint_fatal { Verdict::Sound } else { verdict }
    }

    /// Tells whether a linter is on; an option that is not known is told once, by [`LintArgs::warn`].
    fn is_on(&self, option: &str) -> bool {
        let mut given = self.lint.split(',');
        !self.lint.split(',').any(|given| given == "none") && given.any(|given| given == option || given == "all")
    }

    fn warn(&self, known: &[&str]) {
        let is_known = |option: &&str| option.is_empty() || matches!(*option, "all" | "none") || known.contains(option);
        for option in self.lint.split(',').filter(|option| !is_known(option)) {
            println!("WARNING: unknown lint option: {option:?}");
        }
    }
}

/// Reads a file of text.
fn read(path: &std::path::Path) -> Result<String> {
    let size = std::fs::metadata(path)?.len();
    ensure!(size <= INPUT_SIZE_MAX, "{size} bytes are more than {INPUT_SIZE_MAX}");
    Ok(std::fs::read_to_string(path)?)
}
