//! The DCGM exporter: eight GPUs per machine, each used by a pod.

use super::super::template::{Job, Rows, Subject};
use super::tables::table;

/// GPUs per machine.
pub(super) const GPUS: u8 = 8;

pub(super) fn list(rows: &mut Rows, gpu: u8) {
    let subject = Subject::Gpu {
        slot: u16::from(gpu),
        gpu,
    };
    rows.of(Job::Dcgm, subject)
        .table(&[], table("dcgm: per gpu"));
}
