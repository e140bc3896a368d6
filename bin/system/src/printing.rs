//! Printing of the tools. A closed pipe (`varve wal dump ... | head -1`) ends the process with exit
//! code 0.
//!
//! The macros of the standard library panic instead, so they are replaced: `print!` and `println!`
//! exit, `eprint!` and `eprintln!` ignore errors. Another crate gets them with `#[macro_use]`
//! before `extern crate varve_system`. [`stdout`] is a writer for bulk output.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code if standard output cannot be written for another reason.
const CANNOT_WRITE: i32 = 2;

/// Prints to standard output, or exits.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::printing::to_stdout(::std::format_args!($($arg)*)) };
}

/// Prints a line to standard output, or exits.
#[macro_export]
macro_rules! println {
    () => { $crate::printing::to_stdout(::std::format_args!("\n")) };
    ($($arg:tt)*) => { $crate::printing::to_stdout(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

/// Prints to standard error and ignores errors.
#[macro_export]
macro_rules! eprint {
    ($($arg:tt)*) => { $crate::printing::to_stderr(::std::format_args!($($arg)*)) };
}

/// Prints a line to standard error and ignores errors.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::printing::to_stderr(::std::format_args!("\n")) };
    ($($arg:tt)*) => { $crate::printing::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

/// Prints to standard output, or exits.
pub fn to_stdout(text: fmt::Arguments<'_>) {
    // `Stdout` exits on errors.
    let _ = stdout().write_fmt(text);
}

/// Prints to standard error and ignores errors.
pub fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Returns an error with its causes, each once: errors of the store already include their source.
pub fn error_chain(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |chain, cause| match chain.as_str() {
            "" => cause,
            before if before.ends_with(&cause) => chain,
            before => format!("{before}: {cause}"),
        })
}

/// Prints the error, if any, and returns the exit code of the process.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

/// Prints an error to standard error and returns the exit code of the process.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("varve: {}", error_chain(error));
    ExitCode::FAILURE
}

/// Locks standard output. A failed write exits.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

/// Standard output.
#[derive(Debug)]
pub struct Stdout(io::StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).or_else(exit)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().or_else(exit)
    }
}

/// Exits, unless the write was only interrupted.
fn exit<T>(error: io::Error) -> io::Result<T> {
    match error.kind() {
        ErrorKind::Interrupted => Err(error),
        ErrorKind::BrokenPipe => std::process::exit(0),
        _ => {
            eprintln!("varve: write to standard output: {error}");
            std::process::exit(CANNOT_WRITE)
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn each_cause_is_printed_once() {
        let error = anyhow::Error::from(std::io::Error::other("disk full"))
            .context("write \"x\": disk full");
        assert_eq!(
            error_chain(&error.context("recover \"y\"")),
            "recover \"y\": write \"x\": disk full"
        );
        let error = Err::<(), _>(std::io::Error::other("b"))
            .context("a")
            .unwrap_err();
        assert_eq!(error_chain(&error), "a: b");
    }
}
