//! Identities of machines and pods: names, addresses and ids as in Kubernetes, computed from a
//! seed.

use super::noise::{below, mix, mix2};

/// The letters of Kubernetes' random suffixes: no vowels, so that they form no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const NAMESPACES: [&str; 8] = [
    "research",
    "inference",
    "data",
    "training",
    "platform",
    "batch",
    "monitoring",
    "ingress",
];
const APPS: [&str; 12] = [
    "trainer",
    "llm-gateway",
    "feature-store",
    "tokenizer",
    "evaluator",
    "dataloader",
    "checkpoint-sync",
    "vllm-decode",
    "vllm-prefill",
    "scheduler-shim",
    "artifact-cache",
    "notebook",
];
/// The containers of a pod. The first one runs its application.
const CONTAINERS: [&str; 3] = ["main", "istio-proxy", "log-shipper"];

/// A machine of the fleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) index: u32,
    pub(super) seed: u64,
}

impl Node {
    pub(super) fn name(self) -> String {
        format!("gpu-{:05}", self.index)
    }

    pub(super) fn ip(self) -> String {
        let i = self.index;
        format!(
            "10.{}.{}.{}",
            128 + (i >> 14 & 63),
            i >> 7 & 127,
            2 + (i & 127)
        )
    }
}

/// One pod: the pod of a slot in one generation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod {
    pub(super) seed: u64,
    /// Seed of the workload, which outlives its pods.
    workload: u64,
    slot: u16,
}

impl Pod {
    pub(super) fn new(node: Node, slot: u16, generation: u32) -> Self {
        let workload = mix2(node.seed, u64::from(slot) << 32 | 1);
        Self {
            seed: mix2(workload, u64::from(generation)),
            workload,
            slot,
        }
    }

    pub(super) fn namespace(self) -> &'static str {
        NAMESPACES[draw(self.workload, NAMESPACES.len())]
    }

    fn app(self) -> &'static str {
        APPS[draw(mix(self.workload), APPS.len())]
    }

    /// Returns the name of the pod's ReplicaSet: application and template hash.
    pub(super) fn owner(self) -> String {
        format!(
            "{}-{:02}-{}",
            self.app(),
            self.workload >> 32 & 31,
            letters(mix2(self.workload, 2), 10)
        )
    }

    pub(super) fn name(self) -> String {
        format!("{}-{}", self.owner(), letters(mix2(self.seed, 3), 5))
    }

    /// Returns the id, a UUID of version 4.
    pub(super) fn uid(self) -> String {
        uuid(mix2(self.seed, 4))
    }

    pub(super) fn ip(self, node: Node) -> String {
        let host = 2 + (mix2(self.seed, 5) & 0x7f) + 128 * (u64::from(self.slot) & 1);
        format!(
            "10.{}.{}.{}",
            node.index >> 8 & 127,
            node.index & 255,
            host.min(254)
        )
    }

    /// Returns the cgroup of a container.
    pub(super) fn cgroup(self, container: u8) -> String {
        let class = if self.workload & 3 == 0 {
            "besteffort"
        } else {
            "burstable"
        };
        format!(
            "/kubepods/{class}/pod{}/{}",
            self.uid(),
            self.container_id(container)
        )
    }

    /// Returns the id of a container or of the sandbox.
    pub(super) fn container_id(self, container: u8) -> String {
        hex(mix2(self.seed, 16 + u64::from(container)), 0)
    }

    pub(super) fn container(container: u8) -> &'static str {
        CONTAINERS[usize::from(container) % CONTAINERS.len()]
    }

    pub(super) fn image(self, container: u8) -> String {
        match container {
            0 => format!(
                "cr.example.com/ml/{}:v1.{}.{}",
                self.app(),
                self.workload & 31,
                self.workload & 7
            ),
            1 => "docker.io/istio/proxyv2:1.27.3".to_owned(),
            _ => "docker.io/fluent/fluent-bit:4.1.1".to_owned(),
        }
    }

    pub(super) fn image_id(self, container: u8) -> String {
        format!(
            "sha256:{}",
            hex(
                if container == 0 {
                    self.workload
                } else {
                    container.into()
                },
                32
            )
        )
    }
}

/// Returns the name of a pod of a DaemonSet.
pub(super) fn daemon(node: Node, name: &str) -> String {
    format!("{name}-{}", letters(mix2(node.seed, name.len() as u64), 5))
}

/// Returns a UUID of version 4.
pub(super) fn uuid(seed: u64) -> String {
    let high = mix(seed);
    let low = mix(!seed);
    let a = high >> 32;
    let b = high >> 16 & 0xffff;
    let c = high & 0xfff;
    let d = low >> 48 & 0x3fff | 0x8000;
    let e = low & 0xffff_ffff_ffff;
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

/// Returns 64 random hexadecimal digits.
fn hex(seed: u64, first: u64) -> String {
    (first..first + 4)
        .map(|part| format!("{:016x}", mix2(seed, part)))
        .collect()
}

fn letters(seed: u64, n: u64) -> String {
    (0..n)
        .map(|i| char::from(LETTERS[draw(mix2(seed, i), LETTERS.len())]))
        .collect()
}

fn draw(random: u64, n: usize) -> usize {
    usize::try_from(below(random, n as u64)).expect("less than a length")
}
