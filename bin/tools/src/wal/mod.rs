//! `varve wal`: inspect, verify, dump, repair and replay a WAL, and recover blocks from one.
//!
//! `data_dir` detects whether a data directory is Varve's or Prometheus'. `varve` and `prometheus`
//! have the tools for each. Reports go to standard output, progress and diagnostics to standard
//! error.
//!
//! Exit codes, for scripts: 0 sound, 1 damage was found, 2 the command failed.

mod args;
mod filter;
pub(crate) mod prometheus;
mod record_json;
pub(crate) mod varve;

use std::process::ExitCode;

use anyhow::{Result, bail};

pub use args::WalCommand;

use crate::data_dir::{self, Owner};
use crate::verdict::{self, Verdict};

/// Runs `varve wal ...`.
pub fn run(command: &WalCommand) -> ExitCode {
    verdict::exit_code(dispatch(command))
}

fn dispatch(command: &WalCommand) -> Result<Verdict> {
    match command {
        WalCommand::Inspect(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::inspect::inspect(args),
            Owner::Prometheus => prometheus::inspect::inspect(args),
        },
        WalCommand::Verify(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::inspect::verify(args),
            Owner::Prometheus => prometheus::inspect::verify(args),
        },
        WalCommand::Dump(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::dump::run(args),
            Owner::Prometheus => prometheus::dump::run(args),
        },
        WalCommand::Repair(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::repair::run(args),
            Owner::Prometheus => prometheus::repair::run(args),
        },
        WalCommand::Replay(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::replay::run(args),
            Owner::Prometheus => prometheus::replay::run(args),
        },
        WalCommand::Recover(args) => match data_dir::owner(&args.source)? {
            Owner::Varve => bail!(
                "{:?} is a data directory of Varve, which recovers its WAL when it starts; if it does not start, \
                 use `varve wal repair`",
                args.source
            ),
            Owner::Prometheus => prometheus::recover::run(args),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: WalCommand,
    }

    /// Returns the error of `varve wal recover source --to-blocks target`.
    fn recover_error(source: &Path, target: &Path) -> String {
        let source = source.to_str().unwrap();
        let target = target.to_str().unwrap();
        let cli = Cli::parse_from(["wal", "recover", source, "--to-blocks", target]);
        format!("{:#}", dispatch(&cli.command).unwrap_err())
    }

    /// The commands reported no damage of an empty WAL.
    #[test]
    fn recover_refuses_directories_that_are_not_of_prometheus() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        for name in ["empty", "varve/wal/000000-002"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for (name, reason) in [
            ("nowhere", "does not exist"),
            ("empty", "it is empty"),
            ("", "it contains data directories"),
            ("varve", "use `varve wal repair`"),
        ] {
            let error = recover_error(&dir.path().join(name), &target);
            assert!(error.contains(reason), "{name}: {error}");
        }
        assert!(!target.exists());
    }

    /// Only a target that has the path of the source as its beginning was refused.
    #[test]
    fn recover_writes_nothing_into_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join("chunks_head")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(&data, dir.path().join("link")).unwrap();
        for target in [
            "data",
            "data/out",
            "./data/out",
            "link/out",
            "other/../data/out",
            "missing/../data/out",
            "missing/../link/out",
        ] {
            for source in ["data", "link", "other/../data"] {
                let error = recover_error(&dir.path().join(source), &dir.path().join(target));
                assert!(error.contains("is inside the data directory"), "{error}");
            }
        }
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
