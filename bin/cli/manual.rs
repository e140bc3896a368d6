//! `varve completion` and `varve man`: shell completions and manual pages.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Command};
use clap_complete::Shell;
use varve_system::printing::stdout;

/// Arguments of `varve completion`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Arguments of `varve man`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManArgs {
    /// Command, for example: query instant [default: varve]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,

    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}

/// Prints the completions of a shell for `varve`, the command line.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn completion(args: &CompletionArgs, mut varve: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut varve, "varve", &mut text);
    print(&text)
}

/// Prints the manual page of a command of `varve`, the command line, or writes all pages into a
/// directory.
///
/// # Errors
/// If the command does not exist, or standard output or a file cannot be written.
pub(crate) fn man(args: &ManArgs, varve: Command) -> Result<()> {
    if let Some(dir) = &args.dir {
        return clap_mangen::generate_to(varve, dir)
            .with_context(|| format!("write manual pages into {dir:?}"));
    }
    print(&page(varve, &args.command)?)
}

fn page(mut varve: Command, path: &[String]) -> Result<Vec<u8>> {
    varve.build();
    let mut command = &varve;
    for name in path {
        let Some(found) = command.find_subcommand(name) else {
            bail!("no command {:?}", path.join(" "))
        };
        command = found;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut text)
        .context("render the page")?;
    Ok(text)
}

fn print(text: &[u8]) -> Result<()> {
    stdout().write_all(text).context("print")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::description;

    #[test]
    fn each_command_has_a_page() {
        let page = |path: &[&str]| {
            page(
                description(),
                &path
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let text = String::from_utf8(page(&[]).unwrap()).unwrap();
        assert!(
            text.contains(".TH varve 1") && text.contains("varve\\-query(1)"),
            "{text}"
        );
        let text = String::from_utf8(page(&["tsdb", "create-blocks-from", "openmetrics"]).unwrap())
            .unwrap();
        assert!(text.contains("max\\-block\\-duration"), "{text}");
        assert!(page(&["query", "nothing"]).is_err());
    }

    #[test]
    fn each_shell_completes_all_commands() {
        for shell in [
            clap_complete::Shell::Bash,
            clap_complete::Shell::Zsh,
            clap_complete::Shell::Fish,
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut description(), "varve", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains("dump-openmetrics") && text.contains("lookback-delta"),
                "{shell}"
            );
        }
    }
}
