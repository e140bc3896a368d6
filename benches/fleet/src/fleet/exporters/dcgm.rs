//! The DCGM exporter: eight GPUs per machine, each used by a pod.

use super::super::model::{Model, constant, counter, drawn, gauge, level, rare};
use super::super::template::{Job, Rows, Subject};

/// GPUs per machine.
pub(super) const GPUS: u8 = 8;

const PER_GPU: [(&str, Model); 24] = [
    ("DCGM_FI_DEV_SM_CLOCK", level(1200, 1980, 2)),
    ("DCGM_FI_DEV_MEM_CLOCK", constant(2619)),
    ("DCGM_FI_DEV_GPU_TEMP", level(52, 68, 2)),
    ("DCGM_FI_DEV_MEMORY_TEMP", level(60, 75, 3)),
    ("DCGM_FI_DEV_POWER_USAGE", gauge(18, 19, 17).decimals(3)),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", counter(23, 24)),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", rare(5000)),
    ("DCGM_FI_DEV_GPU_UTIL", level(70, 100, 1)),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", level(20, 60, 1)),
    ("DCGM_FI_DEV_ENC_UTIL", constant(0)),
    ("DCGM_FI_DEV_DEC_UTIL", constant(0)),
    ("DCGM_FI_DEV_XID_ERRORS", constant(0)),
    ("DCGM_FI_DEV_FB_FREE", gauge(13, 15, 3)),
    ("DCGM_FI_DEV_FB_USED", gauge(15, 16, 3)),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", constant(0)),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", constant(0)),
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", counter(18, 26)),
    ("DCGM_FI_DEV_VGPU_LICENSE_STATUS", constant(0)),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gauge(18, 19, 18).decimals(6)),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gauge(17, 18, 17).decimals(6)),
    ("DCGM_FI_PROF_DRAM_ACTIVE", gauge(17, 18, 17).decimals(6)),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", gauge(28, 31, 26)),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", gauge(28, 31, 26)),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", drawn(700, 700)),
];

pub(super) fn list(rows: &mut Rows, gpu: u8) {
    let subject = Subject::Gpu { slot: u16::from(gpu), gpu };
    rows.of(Job::Dcgm, subject).table(&[], &PER_GPU);
}
