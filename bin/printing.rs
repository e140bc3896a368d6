//! What the tools print. A reader that goes away (`varve wal dump ... | head -1`) ends a tool quietly, with code 0.
//!
//! The macros of the standard library panic then, so they are replaced for the whole package: `print!` and `println!` end
//! the process; `eprint!` and `eprintln!`, whose reader is nobody's business, go on. [`stdout`] is for what writes much.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code when standard output cannot be written for another reason: the tool could not do its work.
const CANNOT_WRITE: i32 = 2;

macro_rules! print {
    ($($arg:tt)*) => { $crate::printing::to_stdout(::std::format_args!($($arg)*)) };
}

macro_rules! println {
    () => { $crate::printing::to_stdout(::std::format_args!("\n")) };
    ($($arg:tt)*) => { $crate::printing::to_stdout(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

macro_rules! eprint {
    ($($arg:tt)*) => { $crate::printing::to_stderr(::std::format_args!($($arg)*)) };
}

macro_rules! eprintln {
    () => { $crate::printing::to_stderr(::std::format_args!("\n")) };
    ($($arg:tt)*) => { $crate::printing::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

/// Prints, or ends the process.
pub(crate) fn to_stdout(text: fmt::Arguments<'_>) {
    // The error is that of `stdout` at the earliest: it has ended the process.
    let _ = stdout().write_fmt(text);
}

/// Prints if somebody reads it.
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Returns an error with its causes, each once: what the store says names the operating system's error already.
pub(crate) fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        before if before.ends_with(&cause) => told,
        before => format!("{before}: {cause}"),
    })
}

/// Prints an error to standard error and returns the exit code of the process.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("varve: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns standard output, locked; the process ends when it cannot be written.
pub(crate) fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Stdout(io::StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).or_else(ended)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().or_else(ended)
    }
}

/// Ends the process, unless it was merely interrupted.
fn ended<T>(error: io::Error) -> io::Result<T> {
    match error.kind() {
        ErrorKind::Interrupted => Err(error),
        ErrorKind::BrokenPipe => std::process::exit(0),
        _ => {
            eprintln!("varve: standard output cannot be written: {error}");
            std::process::exit(CANNOT_WRITE)
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::Error::from(std::io::Error::other("disk full")).context("write \"x\": disk full");
        assert_eq!(told(&error.context("recover \"y\"")), "recover \"y\": write \"x\": disk full");
        let error = Err::<(), _>(std::io::Error::other("b")).context("a").unwrap_err();
        assert_eq!(told(&error), "a: b");
    }
}
