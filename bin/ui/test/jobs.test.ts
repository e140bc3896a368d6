import { deepStrictEqual } from "node:assert";
import { test } from "node:test";
import type { MatrixElement } from "../src/api/types";
import { countAlerts } from "../src/pages/jobs/alerts";
import { colorOf } from "../src/pages/jobs/gpu_heat";
import { anyOf, colorBounds, rowsQuery, signalOf, sortGpus } from "../src/pages/jobs/gpus";
import { alertChanges, alertQuery, attemptsOf, missingOf, podChanges } from "../src/pages/jobs/job_data";
import { printAge } from "../src/pages/jobs/list";
import { sortJobs, toJobs } from "../src/pages/jobs/list_data";
import { toNodes } from "../src/pages/jobs/nodes";
import { spanOf } from "../src/pages/jobs/range";
import { RULE_FILES, ruleStateOf, silenceOf } from "../src/pages/jobs/records";
import type { Group } from "../src/pages/rules/data";
import { check } from "./check";

const NOW_MS = 10_000_000;
const record = (name: string, job_id: string, value: number, labels = {}) => ({ metric: { __name__: `training:job:${name}`, job_id, ...labels }, value: [NOW_MS / 1000, String(value)] as [number, string] });
const pods = (id: string, wanted: number, scheduled: number, ready: number) => Object.entries({ wanted, scheduled, ready }).filter(([, n]) => n > 0).map(([state, n]) => record("pods", id, n, { state }));
const alert = (alertname: string, job_id: string, state = "firing", severity = "warning") => ({ labels: { alertname, job_id, severity }, annotations: {}, state, value: "1" });

test("the state of a job follows from its pods and alerts, and the most urgent job comes first", () => {
  const elements = [
    ...pods("running", 2, 2, 2),
    ...pods("slow", 2, 2, 2),
    ...pods("new", 2, 2, 1), record("start", "new", NOW_MS / 1000 - 60),
    ...pods("broken", 2, 2, 1), record("start", "broken", NOW_MS / 1000 - 3600),
    ...pods("half", 2, 1, 1),
    ...pods("queued", 2, 0, 0),
    ...pods("hung", 2, 2, 2),
    record("gpus", "slurm/1", 8, { state: "allocated" }),
  ];
  const alerts = countAlerts([alert("TrainingJobHung", "hung", "firing", "critical"), alert("TrainingGpuSlow", "slow"), alert("TrainingGpuSlow", "new", "pending")], "job_id");
  deepStrictEqual(sortJobs(toJobs(elements, alerts, NOW_MS)).map(({ id, phase }) => [id, phase]), [
    ["hung", "hung"], ["slow", "running"], ["half", "partly scheduled"], ["broken", "not ready"], ["queued", "waiting"], ["new", "starting"], ["slurm/1", "running"], ["running", "running"],
  ]);
});

test("a pending TrainingJobHung is no state, and two teams of a job add up", () => {
  const [job] = toJobs([record("nodes", "a", 1, { team: "x" }), record("nodes", "a", 2, { team: "y" }), ...pods("a", 1, 1, 1)], countAlerts([alert("TrainingJobHung", "a", "pending")], "job_id"), NOW_MS);
  deepStrictEqual([job?.phase, job?.nodes, job?.team, job?.alerts.pending], ["running", 3, "x, y", 1]);
});

check("ages have two units", printAge, [[[30_000], "<1m"], [[90_000], "1m"], [[3_660_000], "1h1m"], [[6 * 86_400_000 + 60_000], "6d"], [[8 * 86_400_000 + 3_600_000], "8d1h"]]);

const STEPS = { startMs: 0, endMs: 600_000, stepMs: 60_000 };
const times = (from: number, to: number) => Array.from({ length: (to - from) / 60 + 1 }, (_, i) => from + i * 60);
const starts = (...runs: Array<[from: number, to: number, start: number]>): MatrixElement[] => [
  { metric: { __name__: "training:job:start" }, values: runs.flatMap(([from, to, start]) => times(from, to).map((time): [number, string] => [time, String(start)])) },
];
check("attempts are separated by a gap, or by pods that are all new", attemptsOf, [
  [[starts([0, 600, -5000]), STEPS], [{ startS: -5000 }]],
  [[starts([0, 120, -50], [300, 600, 290]), STEPS], [{ startS: -50, endS: 120 }, { startS: 290 }]],
  [[starts([0, 120, -50], [180, 600, 150]), STEPS], [{ startS: -50, endS: 120 }, { startS: 150 }]],
  // The oldest pod was replaced: the others are older than the step before.
  [[starts([0, 300, -50], [360, 600, -40]), STEPS], [{ startS: -50 }]],
  // A gap of the records.
  [[starts([0, 120, -50], [300, 600, -50]), STEPS], [{ startS: -50 }]],
  [[starts([0, 120, -50]), STEPS], [{ startS: -50, endS: 120 }]],
  // Jobs without pods have no start.
  [[[{ metric: { __name__: "training:job:gpus" }, values: [...times(60, 120), ...times(300, 600)].map((time): [number, string] => [time, "8"]) }], STEPS], [{ startS: 60, endS: 120 }, { startS: 300 }]],
  [[[], STEPS], []],
]);

test("many pods at one step are one change", () => {
  const pod = (i: number, time: number) => ({ metric: { pod: `p${i}`, node: `n${i}` }, value: [600, String(time)] as [number, string] });
  const texts = (n: number) => podChanges("j", Array.from({ length: n }, (_, i) => pod(i, 120 + i)), "ended", 60).map(({ timeMs, text, more }) => [timeMs, text, more]);
  deepStrictEqual(texts(1), [[120_000, "Pod ended on n0", "p0"]]);
  deepStrictEqual(texts(5), [[120_000, "5 pods ended", "p0, p1, p2 and 2 others"]]);
});

test("alerts fire and end, once or again", () => {
  const series = (...at: number[]): MatrixElement[] => [{ metric: { __name__: "ALERTS", alertname: "A", alertstate: "firing", node: "n" }, values: at.map((time) => [time, "1"]) }];
  const texts = (...at: number[]) => alertChanges(series(...at), STEPS).map(({ timeMs, text }) => [timeMs / 1000, text]);
  deepStrictEqual(texts(120, 180), [[120, "A fires"], [180, "A ends"]]);
  deepStrictEqual(texts(120, 300, 360), [[120, "A fires"], [120, "A ends"], [300, "A fires"], [360, "A ends"]]);
  deepStrictEqual(texts(...times(0, 180)), [[180, "A ends"]]);
  deepStrictEqual(texts(...times(420, 600)), [[420, "A fires"]]);
  deepStrictEqual(texts(...times(0, 600)), [[0, "A fires, and did before"]]);
});

check("alerts of nodes name the node or an instance", alertQuery, [
  [["a/b", []], 'ALERTS{alertstate="firing", job_id="a/b"}'],
  [["a/b", ["n.1", "n2"]], 'ALERTS{alertstate="firing", job_id="a/b"} or ALERTS{alertstate="firing", job_id="", node=~"n\\\\.1|n2"} or ALERTS{alertstate="firing", job_id="", node="", instance=~"(n\\\\.1|n2)(:[0-9]+)?"}'],
]);
check("a list of changes says what it lacks", missingOf, [
  [[499, 199], undefined],
  [[500, 199], "Changes may be missing: the page reads at most 500 begins and ends of pods. Choose a shorter range."],
  [[500, 200], "Changes may be missing: the page reads at most 500 begins and ends of pods and 200 alerts. Choose a shorter range."],
]);
check("texts are matched as they are", anyOf, [[[["a.b", 'c"d']], '"a\\\\.b|c\\"d"']]);

test("the rows of a page are selected by the number of the GPU, so that no other GPU is read", () => {
  const query = rowsQuery("a/b", signalOf("sm_clock"), [{ node: "n1", gpu: "0" }, { node: "n2", gpu: "3" }, { node: "n3", gpu: "0" }]);
  deepStrictEqual(query, 'max by (Hostname, gpu) (DCGM_FI_DEV_SM_CLOCK{gpu="0", Hostname=~"n1|n3"} or DCGM_FI_DEV_SM_CLOCK{gpu="3", Hostname=~"n2"}) and on (Hostname, gpu) label_replace(training:gpu:info{job_id="a/b", node=~"n1|n2|n3"}, "Hostname", "$1", "node", "(.+)")');
});

test("stragglers come first, then the lowest means, or the highest temperatures", () => {
  const gpus = [{ node: "a", gpu: "0", mean: 5 }, { node: "a", gpu: "1", mean: 3 }, { node: "b", gpu: "0", mean: 9 }];
  const slow = [{ node: "b", gpu: "0", device: "", signal: "power", share: 0.5, minutes: 1, lastMs: 0 }, { node: "a", gpu: "", device: "mlx5_0", signal: "x", share: 0.5, minutes: 1, lastMs: 0 }];
  const order = (id: string, stragglers = slow) => sortGpus(gpus, stragglers, signalOf(id)).map(({ node, gpu, slow: signals }) => [node + gpu, ...signals]);
  deepStrictEqual(order("power"), [["b0", "power"], ["a1"], ["a0"]]);
  deepStrictEqual(order("temperature", []), [["b0"], ["a0"], ["a1"]]);
});

check("the colors of noise do not differ much", colorBounds, [
  [[signalOf("power"), { min: 590, max: 600 }], [600, 480]],
  [[signalOf("power"), { min: 300, max: 600 }], [600, 300]],
  [[signalOf("utilization"), { min: 50, max: 60 }], [100, 0]],
  [[signalOf("temperature"), { min: 40, max: 80 }], [40, 80]],
]);
check("the worst value has the strongest color", colorOf, [[[600, 600, 300], 0], [[300, 600, 300], 9], [[450, 600, 300], 5], [[80, 40, 80], 9], [[0, 0, 0], 0]]);

check("a range is that of the address, or the last hour", (text: string) => spanOf(new URLSearchParams(text)), [
  [[""], { rangeMs: 3_600_000 }],
  [["range=6h&end=1000"], { rangeMs: 21_600_000, endMs: 1_000_000 }],
  [["range=1s&end=x"], { rangeMs: 3_600_000 }],
]);

test("nodes have the parts of their score", () => {
  const of = (name: string, value: number, labels = {}) => ({ metric: { __name__: `training:node:${name}`, node: "n", ...labels }, value: [0, String(value)] as [number, string] });
  const [node] = toNodes([of("lemon_score:30d", 7.5), of("incidents:30d", 4), of("failed_pods:30d", 3), of("straggler_minutes:30d", 30), of("info", 1, { job_id: "j" })], countAlerts([], "node"));
  deepStrictEqual(node, { node: "n", score: 7.5, incidents: 4, failedPods: 3, stragglerMinutes: 30, jobs: ["j"], alerts: { firing: 0, pending: 0, isCritical: false, names: [] } });
});

test("missing, silent and failing rule files are told apart", () => {
  const group = (name: string, ...rules: string[]): Group => ({ name, file: "f", interval: 30, evaluationTime: 0, lastEvaluation: "", rules: rules.map((rule) => ({ type: "recording", name: rule, query: "x", health: rule === "training:job:nodes" ? "err" : "ok", lastError: "many-to-many", evaluationTime: 0, lastEvaluation: "" })) });
  const of = (recorded: string[], ...groups: Group[]) => {
    const { isAbsent, missing, silent, failing } = ruleStateOf(new Set(recorded), groups);
    const index = (file: (typeof RULE_FILES)[number]) => RULE_FILES.indexOf(file);
    return [isAbsent, missing.map(index), silent.map(index), failing.map(({ rule }) => rule)];
  };
  const others = group("node", "instance:node_cpu:ratio");
  deepStrictEqual(of([], others), [true, [0, 1], [], []]);
  // Another program evaluates the rules.
  deepStrictEqual(of(["training:pod:info", "training:job:pods"], others), [false, [], [], []]);
  deepStrictEqual(of(["training:pod:info"], others), [false, [1], [], []]);
  deepStrictEqual(of(["training:gpu:info", "training:job:gpus"], group("training-jobs", "training:job:pods", "training:job:nodes")), [false, [2, 3], [], ["training:job:nodes"]]);
  deepStrictEqual(of([], group("training-jobs", "training:job:pods")), [false, [0, 2, 3], [1], []]);
  deepStrictEqual(of([], group("training-gpus-slurm", "training:gpu:info")), [false, [1, 2, 3], [0], []]);
});

check("rules that were loaded a minute ago are not silent for two hours", silenceOf, [
  [[undefined], "Rule files are loaded, but have recorded nothing for two hours, or since they were loaded: the series that they read are missing."],
  [[60], "Rule files are loaded, but have recorded nothing yet: the configuration was loaded 60 s ago. Records follow some minutes after the series that they read."],
  [[1200.4], "Rule files are loaded, but have recorded nothing in the 20 min since the configuration was loaded: the series that they read are missing."],
  [[7200], "Rule files are loaded, but have recorded nothing for two hours: the series that they read are missing."],
]);
