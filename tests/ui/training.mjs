// Records of training jobs, as the rules of docs/mixin/training write them, and the DCGM series of their GPUs.

const MINUTE_S = 60;
const STEP_S = 30;
/** Samples after now, so that a slow test still finds some. */
const AHEAD_S = 8 * MINUTE_S;

/** Collects series for `/api/v1/import`. Ages are seconds before `nowMs`. */
export function recorder(nowMs = Date.now()) {
  const lines = [];
  /** Adds a series with a sample every 30 s from one age to another, or a single sample. `value` may be a function of the age. */
  const add = (name, labels, value, fromS = 60 * MINUTE_S, toS = -AHEAD_S) => {
    const ages = [];
    for (let age = fromS; age >= toS; age -= STEP_S) ages.push(age);
    const values = ages.map((age) => (typeof value === "function" ? value(age) : value));
    if (toS > 0 && toS < fromS) {
      // The end of a series: a staleness marker.
      ages.push(ages.at(-1) - STEP_S);
      values.push(null);
    }
    lines.push(JSON.stringify({ metric: { __name__: name, ...labels }, values, timestamps: ages.map((age) => nowMs - age * 1000) }));
  };
  /** Adds the records of a job that has the same numbers all the time. */
  const addJob = (id, team, { pods = {}, gpus = {}, ...others }, fromS, toS) => {
    const labels = { job_id: id, team };
    for (const [state, n] of Object.entries(pods)) add("training:job:pods", { ...labels, state }, n, fromS, toS);
    for (const [state, n] of Object.entries(gpus)) add("training:job:gpus", { ...labels, state }, n, fromS, toS);
    for (const [record, value] of Object.entries(others)) add(`training:job:${record}`, labels, value, fromS, toS);
  };
  return { nowS: nowMs / 1000, add, addJob, body: () => `${lines.join("\n")}\n` };
}

/** Name of a node. */
export const nodeName = (i) => `gpu-node-${String(i).padStart(3, "0")}`;

/** Adds the GPUs of a job on nodes, eight each, with the value of a DCGM field, which they have before the job, too. */
export function addGpus({ add }, job, team, nNodes, metric, value, { firstNode = 0, fromS, toS } = {}) {
  for (let i = 0; i < nNodes; i++) {
    for (let gpu = 0; gpu < 8; gpu++) {
      const [node, number] = [nodeName(firstNode + i), String(gpu)];
      add("training:gpu:info", { job_id: job, team, node, gpu: number }, 1, fromS, toS);
      add(metric, { Hostname: node, gpu: number, UUID: `GPU-${node}-${gpu}`, modelName: "NVIDIA H100 80GB HBM3", namespace: job.split("/")[0], pod: `pod-${i}` }, (age) => value(i * 8 + gpu, age), undefined, toS);
    }
  }
}

/** Jobs and GPUs of a large cluster: the largest has 512 nodes. */
export const CLUSTER = { jobs: 500, job: "research/pretrain-000", nodes: 512 };

/** Adds the jobs of a large cluster, and the power of the GPUs of the largest one. One GPU is slow. */
export function addCluster(data, { jobs = CLUSTER.jobs, nodes = CLUSTER.nodes } = {}) {
  const teams = ["research", "vision", "speech", "ranking"];
  const noise = (i) => Math.abs(Math.sin(i * 12.9898) * 43_758.5453) % 1;
  for (let i = 0; i < jobs; i++) {
    const team = teams[i % teams.length];
    const n = i === 0 ? nodes : 1 + Math.floor(noise(i) * 16);
    const scheduled = i % 31 === 7 ? Math.ceil(n / 2) : n;
    const ready = i % 53 === 11 ? Math.floor(scheduled / 2) : scheduled;
    const id = i === 0 ? CLUSTER.job : `${team}/${["pretrain", "finetune", "eval", "distill"][i % 3]}-${String(i).padStart(3, "0")}`;
    addRunningJob(data, id, team, { n, scheduled, ready, ageS: 3600 * (1 + noise(i + 0.5) * 200), utilization: 0.6 + 0.4 * noise(i + 0.3), active: 0.2 + 0.4 * noise(i + 0.7) });
  }
  const slowFrom = 20 * MINUTE_S;
  const slow = nodes * 4 + 3;
  const watts = (i, age) => Math.round((i === slow && age < slowFrom ? 380 : 640) + 30 * noise(i) + 25 * noise(i * 7 + age));
  addGpus(data, CLUSTER.job, "research", nodes, "DCGM_FI_DEV_POWER_USAGE", watts);
  data.add("training:rank:straggler", { job_id: CLUSTER.job, node: nodeName(Math.floor(slow / 8)), gpu: String(slow % 8), signal: "power" }, 0.58, slowFrom - 150);
  for (let i = 0; i < nodes; i++) {
    const isReplaced = i === 7;
    const pod = (name, fromS, toS) => data.add("training:pod:info", { job_id: CLUSTER.job, team: "research", namespace: "research", pod: name, node: nodeName(i) }, 1, fromS, toS);
    pod(`pretrain-000-${i}`, 60 * MINUTE_S, isReplaced ? 35 * MINUTE_S : undefined);
    if (isReplaced) pod(`pretrain-000-${i}-b`, 33 * MINUTE_S);
  }
}

function addRunningJob({ nowS, addJob }, id, team, { n, scheduled, ready, ageS, utilization, active }) {
  const fromS = 10 * MINUTE_S;
  const gpus = { wanted: n * 8, allocated: scheduled * 8, busy: ready * 8 };
  const rates = { power_watts: scheduled * 8 * 655, utilization, tensor_active: active, "infiniband_bytes:rate2m": scheduled * 8 * 1.7e9 };
  addJob(id, team, { pods: { wanted: n, scheduled, ready }, gpus, nodes: scheduled, start: nowS - ageS, restarts: n % 3, ...rates }, fromS);
}

/** Writes the series to a server. */
export async function send(server, { body }) {
  const response = await server.post("/api/v1/import", body(), "application/json");
  if (!response.ok) throw new Error(`import: ${response.status} ${await response.text()}`);
}
