//! The result of a tool that reads a data directory: whether it found damage.

use std::process::ExitCode;

use anyhow::Result;
use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_system::printing::error_chain;

/// The result of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    Damaged,
}

impl Verdict {
    /// Returns the last line of a report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Damaged => "damage was found",
        }
    }

    /// Returns the verdict on a directory.
    pub(crate) fn from_damage(damage: &DamageReport) -> Self {
        if damage.n_damaged() == 0 {
            Self::Sound
        } else {
            Self::Damaged
        }
    }

    /// Returns the verdict on what was read: damaged if samples are lost or unaccounted for, too.
    pub(crate) fn new(damage: &DamageReport, totals: &SampleTotals) -> Self {
        if totals.is_complete() {
            Self::from_damage(damage)
        } else {
            Self::Damaged
        }
    }
}

/// Prints the error of a tool and returns its exit code: 0 sound, 1 damage was found, 2 the tool
/// failed.
pub(crate) fn exit_code(result: Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Sound) => ExitCode::SUCCESS,
        Ok(Verdict::Damaged) => ExitCode::from(1),
        Err(error) => {
            eprintln!("varve: {}", error_chain(&error));
            ExitCode::from(2)
        }
    }
}
