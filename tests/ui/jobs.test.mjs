// Training jobs: the list, one job with its GPUs, and nodes, from records as docs/mixin/training writes them. Every number of the
// data is different, so that a wrong one differs.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, waitUntil, wideTables } from "./harness.mjs";
import { addGpus, nodeName, recorder, send } from "./training.mjs";

const MINUTE_S = 60;
const LLAMA = "research/llama";
/** GPUs of the job: more than two pages. */
const NODES = 17;
const ROWS = 64;
const SLOW = { node: nodeName(5), gpu: "3" };
/** Its mean is not the lowest. */
const SLOW_WATTS = 480;
/** Of a GPU before the job had it. */
const IDLE_WATTS = 90;
/** Ages at which the slow GPU is slow, in seconds. */
const SLOW_FROM_S = 10 * MINUTE_S;
/** An earlier attempt, and the start of this one. */
const [FIRST_START_S, FIRST_END_S, START_S] = [3300, 3000, 2700];

const CONFIG = "rule_files: [rules.yml]\nrules: {wait: none}\n";
/** Alerts of the pack's names. The records are written by the test. */
const RULES = `groups:
- name: training-test
  interval: 5s
  rules:
  - {alert: TrainingJobHung, expr: test_hung == 1, labels: {severity: critical}}
  - {alert: TrainingGpuSlow, expr: 'training:rank:straggler{gpu!=""}', labels: {severity: warning}}
  - {alert: TrainingWaits, expr: test_pending == 1, for: 1h}
`;

/** Jobs, the most urgent first, as the list shows them: state, firing alerts, team, GPUs, nodes, ready pods. */
const LISTED = [
  ["research/hung", "hung", "1", "research", "24", "3", "3"],
  [LLAMA, "running", "1", "research", "136", "17", "17"],
  ["vision/half", "partly scheduled", "0", "vision", "16 of 32", "2", "2 of 4"],
  ["vision/stuck", "not ready", "0", "vision", "40", "5", "4 of 5"],
  ["speech/queued", "waiting", "0", "speech", "0 of 56", "0", "0 of 7"],
  ["speech/begins", "starting", "1 pending", "speech", "48", "6", "1 of 6"],
  ["slurm/42", "running", "0", "slurm", "64", "8", "0"],
];

function writeJobs(data) {
  const { nowS, addJob, add } = data;
  addJob("research/hung", "research", { pods: { wanted: 3, scheduled: 3, ready: 3 }, gpus: { wanted: 24, allocated: 24 }, nodes: 3, start: nowS - 7200, utilization: 0.99, tensor_active: 0.001 });
  addJob("vision/half", "vision", { pods: { wanted: 4, scheduled: 2, ready: 2 }, gpus: { wanted: 32, allocated: 16 }, nodes: 2, start: nowS - 1800, utilization: 0.01, tensor_active: 0 });
  addJob("vision/stuck", "vision", { pods: { wanted: 5, scheduled: 5, ready: 4 }, gpus: { wanted: 40, allocated: 40 }, nodes: 5, start: nowS - 86_400, utilization: 0.52, tensor_active: 0.21 });
  addJob("speech/queued", "speech", { pods: { wanted: 7 }, gpus: { wanted: 56 }, start: nowS - 600 });
  addJob("speech/begins", "speech", { pods: { wanted: 6, scheduled: 6, ready: 1 }, gpus: { wanted: 48, allocated: 48 }, nodes: 6, start: nowS - 60, utilization: 0.13, tensor_active: 0.02 });
  addJob("slurm/42", "slurm", { gpus: { allocated: 64 }, nodes: 8, utilization: 0.77, tensor_active: 0.33 });
  // A workload without GPUs.
  addJob("monitoring/prometheus", "monitoring", { pods: { wanted: 2, scheduled: 2, ready: 2 }, start: nowS - 864_000 });
  add("test_hung", { job_id: "research/hung" }, 1, 5 * MINUTE_S);
  add("test_pending", { job_id: "speech/begins" }, 1, 5 * MINUTE_S);
}

/** The job with 136 GPUs: an attempt that ended, one that runs, a replaced pod, a straggler, alerts. */
function writeLlama(data) {
  const { nowS, addJob, add } = data;
  const pods = { wanted: 17, scheduled: 17, ready: 17 };
  const gpus = { wanted: 136, allocated: 136, busy: 131 };
  addJob(LLAMA, "research", { pods, gpus, nodes: NODES, start: nowS - FIRST_START_S }, FIRST_START_S, FIRST_END_S);
  addJob(LLAMA, "research", { pods, gpus, nodes: NODES, start: nowS - START_S, restarts: 9, power_watts: 77_770, utilization: 0.93, tensor_active: 0.47, "infiniband_bytes:rate2m": 3 * 2 ** 30 }, START_S);
  const isSlow = (i, age) => i === 5 * 8 + 3 && age <= SLOW_FROM_S;
  addGpus(data, LLAMA, "research", NODES, "DCGM_FI_DEV_POWER_USAGE", (i, age) => (age > START_S ? IDLE_WATTS : isSlow(i, age) ? SLOW_WATTS : 500 + i), { fromS: START_S });
  for (const signal of ["power", "sm_clock"]) add("training:rank:straggler", { job_id: LLAMA, ...SLOW, signal }, signal === "power" ? 0.55 : 0.71, SLOW_FROM_S, 0);
  add("training:rank:straggler", { job_id: LLAMA, node: nodeName(7), device: "mlx5_2", signal: "infiniband_bytes" }, 0.4, 25 * MINUTE_S, 20 * MINUTE_S);
  const pod = (name, i, fromS, toS) => add("training:pod:info", { job_id: LLAMA, team: "research", namespace: "research", pod: name, node: nodeName(i) }, 1, fromS, toS);
  for (let i = 0; i < NODES; i++) pod(`llama-a-${i}`, i, FIRST_START_S, FIRST_END_S);
  for (let i = 0; i < NODES; i++) pod(`llama-b-${i}`, i, START_S, i === 3 ? 1500 : undefined);
  pod("llama-b-x", 3, 1200);
  add("ALERTS", { alertname: "KubeNodeNotReady", alertstate: "firing", node: nodeName(3) }, 1, 1590, 1410);
  add("ALERTS", { alertname: "NodeDiskFull", alertstate: "firing", instance: `${nodeName(4)}:9100` }, 1, 900, 810);
  // Of another node.
  add("ALERTS", { alertname: "Other", alertstate: "firing", node: nodeName(40) }, 1, 900, 810);
}

function writeNodes({ add }) {
  const nodes = [[nodeName(5), 23.5, 14, 6, 210], [nodeName(3), 4.25, 2, 2, 15], [nodeName(9), 1, 1, 0, 0]];
  for (const [node, score, incidents, failedPods, minutes] of nodes) {
    // The group of these records runs every hour.
    const record = (name, value) => value > 0 && add(`training:node:${name}:30d`, { node }, value, 50 * MINUTE_S, 50 * MINUTE_S);
    record("lemon_score", score);
    record("incidents", incidents);
    record("failed_pods", failedPods);
    record("straggler_minutes", minutes);
  }
  add("training:node:info", { job_id: LLAMA, node: nodeName(5) }, 1);
}

describe("jobs", { skip: missing() }, () => {
  let server;
  let browser;
  let startedS;
  before(async () => {
    server = await startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=0s"], files: { "varve.yml": CONFIG, "rules.yml": RULES } });
    const data = recorder();
    startedS = data.nowS;
    writeJobs(data);
    writeLlama(data);
    writeNodes(data);
    await send(server, data);
    // The slow GPU is slow in two signals.
    await waitUntil("all alerts are active", async () => (await api("alerts")).alerts.length === 4);
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const api = async (path) => (await (await fetch(`${server.url}/api/v1/${path}`)).json()).data;
  const ask = async (query) => (await api(`query?query=${encodeURIComponent(query)}`)).result;
  const jobUrl = (more = "") => `${server.url}/jobs?job=${encodeURIComponent(LLAMA)}${more}`;
  const cells = (page, caption) =>
    page.evaluate((name) => {
      const table = [...document.querySelectorAll("table.data")].find((one) => one.caption?.innerText === name);
      return [...(table?.tBodies[0].rows ?? [])].map((row) => [...row.cells].map((cell) => cell.innerText.replaceAll(/\s+/g, " ").trim()));
    }, caption);
  const rowNames = (page) => page.locator(".heat-rows li a").allInnerTexts();

  test("the list has the numbers of the API, the jobs that need attention first", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/jobs`);
    await page.getByRole("link", { name: LLAMA }).waitFor();
    const rows = await cells(page, "Jobs");
    const alertsOf = (row) => (row[0] === LLAMA ? [...row.slice(0, 2), "2", ...row.slice(3)] : row);
    deepStrictEqual(rows.map((row) => row.slice(0, 7)), LISTED.map(alertsOf));
    const byJob = async (record) => new Map((await ask(`training:job:${record}`)).map(({ metric, value }) => [metric.job_id, Number(value[1])]));
    const [utilization, tensor, start] = [await byJob("utilization"), await byJob("tensor_active"), await byJob("start")];
    for (const [id, , , , , , , age, used, active] of rows) {
      const percent = (value) => (value === undefined ? "–" : value === 0 || value >= 0.0995 ? `${Math.round(value * 100)} %` : `${(value * 100).toFixed(1)} %`);
      deepStrictEqual([used, active], [percent(utilization.get(id)), percent(tensor.get(id))], id);
      const minutes = start.has(id) ? (Date.now() / 1000 - start.get(id)) / 60 : undefined;
      const shown = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?$/.exec(age);
      if (minutes === undefined) strictEqual(age, "–", id);
      else ok(Math.abs(Number(shown[1] ?? 0) * 1440 + Number(shown[2] ?? 0) * 60 + Number(shown[3] ?? 0) - minutes) < 2, `${id}: ${age}`);
    }
    deepStrictEqual(problems, []);
    await close();
  });

  test("the list is filtered by state, team and text, and shows jobs without GPUs on request", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/jobs`);
    await page.getByRole("link", { name: LLAMA }).waitFor();
    const names = async () => (await cells(page, "Jobs")).map(([name]) => name);
    const tiles = await page.getByRole("group", { name: "State" }).getByRole("button").allInnerTexts();
    deepStrictEqual(tiles.map((text) => text.split(/\s*\n\s*|\s+(?=\d)/).filter(Boolean)), [["With firing alerts", "2"], ["Hung", "1"], ["Partly scheduled", "1"], ["Not ready", "1"], ["Waiting", "1"], ["Starting", "1"], ["Running", "2"]]);
    await page.getByRole("button", { name: /^With firing alerts/ }).click();
    deepStrictEqual(await names(), ["research/hung", LLAMA]);
    await page.getByRole("button", { name: /^With firing alerts/ }).click();
    await page.getByLabel("Team").selectOption("vision");
    deepStrictEqual(await names(), ["vision/half", "vision/stuck"]);
    await page.getByLabel("Team").selectOption("");
    await page.getByLabel("Search: Jobs").fill("TrainingGpuSlow");
    deepStrictEqual(await names(), [LLAMA]);
    await page.getByLabel("Search: Jobs").fill("");
    await page.getByLabel("Also 1 without GPUs").check();
    strictEqual((await names()).at(-1), "monitoring/prometheus");
    deepStrictEqual(problems, []);
    await close();
  });

  test("a job has the figures of its records", async () => {
    const { page, problems, close } = await openPage(browser, jobUrl());
    await page.getByText("Ready pods").waitFor();
    const figures = await page.evaluate(() => Object.fromEntries([...document.querySelectorAll("dl.figures > div")].map((one) => [one.querySelector("dt").innerText, one.querySelector("dd").innerText])));
    const { Start: start, ...others } = figures;
    match(start, /^4[5-9]m ago$/);
    deepStrictEqual(others, { GPUs: "136", "Busy GPUs": "131 of 136", Nodes: "17", "Ready pods": "17", Restarts: "9", Utilization: "93 %", "Tensor activity": "47 %", Power: "77.8 kW", InfiniBand: "3 GiB/s" });
    await page.getByText("2 attempts in the range").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("the straggler is the first row and marked, then the lowest means follow, in pages", async () => {
    const { page, problems, close } = await openPage(browser, jobUrl());
    await page.locator(".heat-rows li").first().waitFor();
    const names = await rowNames(page);
    const expected = Array.from({ length: NODES * 8 }, (_, i) => `${nodeName(Math.floor(i / 8))}/${i % 8}`).filter((name) => name !== `${SLOW.node}/${SLOW.gpu}`);
    deepStrictEqual(names.map((name) => name.replaceAll(/\s/g, "")), [`${SLOW.node}/${SLOW.gpu}`, ...expected.slice(0, ROWS - 1)]);
    strictEqual(await page.locator(".heat-rows li.slow").count(), 1);
    strictEqual(await page.locator(".heat-rows li").nth(1).locator(".heat-mean").innerText(), "500 W");
    await page.getByText(`GPUs 1 to ${ROWS} of ${NODES * 8}`).waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText(`GPUs 65 to 128 of ${NODES * 8}`).waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText(`GPUs 129 to 136 of ${NODES * 8}`).waitFor();
    await page.locator(".heat-rows li:nth-child(8)").waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".heat-rows li").length === 8);
    deepStrictEqual((await rowNames(page)).map((name) => name.replaceAll(/\s/g, "")), expected.slice(-8));
    strictEqual(await page.locator(".heat-rows li.slow").count(), 0);
    strictEqual(await page.getByRole("button", { name: "Next" }).isDisabled(), true);
    deepStrictEqual(problems, []);
    await close();
  });

  test("the heat map has the value of each GPU and time, and none before the job had the GPU", async () => {
    // So high that the last row is on the screen.
    const { page, problems, close } = await openPage(browser, jobUrl(), { height: 1700 });
    await page.locator(".heat-map .u-over").waitFor();
    const plot = await page.locator(".heat-map .u-over").boundingBox();
    const rowHeight = plot.height / ROWS;
    const tipAt = async (row, share) => {
      await page.mouse.move(plot.x + plot.width * share, plot.y + rowHeight * (row + 0.5));
      return (await page.locator(".heat-map .tip").innerText()).split("\n").slice(1);
    };
    deepStrictEqual(await tipAt(0, 0.97), [`${SLOW.node}, GPU ${SLOW.gpu}: ${SLOW_WATTS} W`, "slow in power, sm_clock"]);
    deepStrictEqual(await tipAt(0, 0.5), [`${SLOW.node}, GPU ${SLOW.gpu}: 543 W`]);
    deepStrictEqual(await tipAt(1, 0.97), [`${nodeName(0)}, GPU 0: 500 W`]);
    deepStrictEqual(await tipAt(ROWS - 1, 0.97), [`${nodeName(7)}, GPU 7: 563 W`]);
    deepStrictEqual(await tipAt(1, 0.05), [`${nodeName(0)}, GPU 0: no sample`]);
    // A row's label stands beside its row.
    const label = await page.locator(".heat-rows li").nth(ROWS - 1).boundingBox();
    ok(Math.abs(label.y + label.height / 2 - (plot.y + rowHeight * (ROWS - 0.5))) < 4, "the last label is beside its row");
    deepStrictEqual(problems, []);
    await close();
  });

  test("stragglers and changes are listed, and lead to the query page", async () => {
    const { page, problems, close } = await openPage(browser, jobUrl());
    await page.getByRole("region", { name: "Changes" }).waitFor();
    await page.getByRole("region", { name: "Stragglers" }).waitFor();
    const slow = await cells(page, "Stragglers");
    const name = `${SLOW.node}, GPU ${SLOW.gpu}`;
    deepStrictEqual(slow.map((row) => row.slice(0, 3)).sort(), [[`${nodeName(7)}, mlx5_2`, "infiniband_bytes", "40 %"], [name, "power", "55 %"], [name, "sm_clock", "71 %"]].sort());
    const changes = (await cells(page, "Changes")).map(([, what, more]) => `${what} ${more}`.trim());
    // The server began to evaluate this rule a moment ago.
    deepStrictEqual(changes.filter((text) => !text.startsWith("TrainingGpuSlow")), [
      "NodeDiskFull ends instance=gpu-node-004:9100",
      "NodeDiskFull fires instance=gpu-node-004:9100",
      "Pod began on gpu-node-003 llama-b-x",
      "KubeNodeNotReady ends node=gpu-node-003",
      "Pod ended on gpu-node-003 llama-b-3",
      "KubeNodeNotReady fires node=gpu-node-003",
      "Attempt began",
      "17 pods began llama-b-0, llama-b-1, llama-b-10 and 14 others",
      "Attempt ended after 5 minutes",
      "17 pods ended llama-a-0, llama-a-1, llama-a-10 and 14 others",
      "Attempt began",
      "17 pods began llama-a-0, llama-a-1, llama-a-10 and 14 others",
    ]);
    await page.getByRole("link", { name, exact: true }).first().click();
    await page.getByRole("heading", { name: "Query" }).waitFor({ state: "attached" }).catch(() => {});
    match(decodeURIComponent(page.url()), /\/query\?.*training:rank:signal/);
    deepStrictEqual(problems, []);
    await close();
  });

  test("a job that ended shows its end, and a range in the past its numbers then", async () => {
    // Between the two attempts.
    const endS = startedS - FIRST_END_S + 120;
    const { page, problems, close } = await openPage(browser, jobUrl(`&range=10m&end=${endS}`));
    await page.getByText("The figures are those of its end.").waitFor();
    const ended = await page.getByText(/^ended \d{4}-/).innerText();
    ok(Math.abs(Date.parse(`${ended.slice(6).replace(" ", "T")}Z`) / 1000 - (startedS - FIRST_END_S)) <= 30, ended);
    strictEqual(await page.locator("dl.figures div", { hasText: "Ready pods" }).locator("dd").innerText(), "17");
    strictEqual(await page.locator("dl.figures div", { hasText: "Restarts" }).locator("dd").innerText(), "–");
    await page.getByText("There are no samples of DCGM_FI_DEV_POWER_USAGE").waitFor();
    await page.goto(`${server.url}/jobs?job=none%2Fnone`);
    await page.getByText("Nothing is recorded of this job in the range.").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("the signal is chosen, and one that dcgm-exporter does not send is named", async () => {
    const { page, problems, close } = await openPage(browser, jobUrl());
    await page.locator(".heat-rows li").first().waitFor();
    await page.getByLabel("Signal").selectOption("temperature");
    await page.getByText("There are no samples of DCGM_FI_DEV_GPU_TEMP").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("nodes are ranked by their score, with the evidence", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/jobs`);
    await page.getByRole("link", { name: "Nodes", exact: true }).click();
    await page.getByRole("region", { name: "Nodes" }).waitFor();
    deepStrictEqual(await cells(page, "Nodes"), [
      [nodeName(5), "23.5", "14", "6", "3h30m", "2", LLAMA],
      [nodeName(3), "4.25", "2", "2", "15m", "0", ""],
      [nodeName(9), "1", "1", "0", "0m", "0", ""],
    ]);
    deepStrictEqual(problems, []);
    await close();
  });

  test("the navigation shows the page where there are jobs", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/overview`);
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    // It fits, or becomes a menu.
    for (const width of [1255, 1300, 1341]) {
      await page.setViewportSize({ width, height: 900 });
      const room = await page.evaluate(() => document.querySelector(".head-end").getBoundingClientRect().left - [...document.querySelectorAll("#nav a")].at(-1).getBoundingClientRect().right);
      ok(room >= 0 || (await page.locator(".head .menu").isVisible()), `${width} px: ${room}`);
    }
    deepStrictEqual(problems, []);
    await close();
  });

  for (const theme of ["light", "dark"]) {
    for (const width of [1440, 390, 320]) {
      test(`${theme}, ${width} px`, async () => {
        for (const [path, text] of [["jobs", LLAMA], ["jobs?view=nodes", nodeName(9)], [`jobs?job=${encodeURIComponent(LLAMA)}`, "Attempt ended"]]) {
          const { page, problems, close } = await openPage(browser, `${server.url}/${path}`, { theme, width });
          await page.getByText(text, { exact: false }).first().waitFor();
          await settle(page);
          strictEqual(await page.evaluate(() => document.scrollingElement.scrollWidth), width, path);
          deepStrictEqual(await wideTables(page), [], path);
          deepStrictEqual([...problems, ...(await violations(page))], [], path);
          await close();
        }
      });
    }
  }
});

/** More jobs than the list has. */
const MANY = 1003;

describe("jobs without all rules", { skip: missing() }, () => {
  let browser;
  before(async () => (browser = await startBrowser()));
  after(() => browser?.close());

  test("a store without training jobs has no entry in its navigation, and the page says which rules it needs", async () => {
    const server = await startServer();
    const { page, problems, close } = await openPage(browser, `${server.url}/targets`);
    await page.getByText("Varve does not scrape.").waitFor();
    await settle(page);
    strictEqual(await page.getByRole("link", { name: "Jobs", exact: true }).count(), 0);
    await page.keyboard.press("g");
    await page.keyboard.press("j");
    await page.getByText("there are no such records").waitFor();
    for (const file of ["jobs-owner.yaml", "jobs.yaml", "nodes.yaml", "alerts.yaml"]) strictEqual(await page.locator("main code", { hasText: file }).count() > 0, true, file);
    await page.getByText("docs/mixin/training/README.md").waitFor();
    strictEqual(await page.getByRole("link", { name: "Jobs", exact: true }).first().isVisible(), true, "the page that is open");
    await settle(page);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
    await server.stop();
  });

  test("a list that lacks jobs says so, and has those with the most GPUs", async () => {
    const server = await startServer({ flags: ["--self-scrape-interval=0s"] });
    const data = recorder();
    for (let i = 0; i < MANY; i++) data.add("training:job:gpus", { job_id: `j/${i}`, state: "wanted" }, i + 1, 60, 60);
    await send(server, data);
    const { page, problems, close } = await openPage(browser, `${server.url}/jobs`);
    await page.getByText("the 1,000 jobs with the most GPUs of 1,003").waitFor();
    await page.getByRole("link", { name: `j/${MANY - 1}`, exact: true }).waitFor();
    await page.getByLabel("Search: Jobs").fill("j/2");
    await page.getByText("110 of the 1,000 jobs").waitFor();
    strictEqual(await page.getByRole("link", { name: "j/2", exact: true }).count(), 0, "one of the three smallest");
    deepStrictEqual(problems, []);
    await close();
    await server.stop();
  });

  test("missing files, files without input, and failing rules are named", async () => {
    const files = {
      "varve.yml": "rule_files: [jobs.yaml, broken.yml]\nrules: {wait: none}\n",
      "jobs.yaml": await readFile(join(import.meta.dirname, "../../docs/mixin/training/jobs.yaml"), "utf8"),
      "broken.yml": "groups:\n- name: training-broken\n  interval: 1s\n  rules:\n  - {record: 'training:broken', expr: 'm * on (job) m'}\n",
    };
    const server = await startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=0s"], files });
    await server.post("/api/v1/import/prometheus", 'm{job="a",i="1"} 1\nm{job="a",i="2"} 1\n', "text/plain");
    await waitUntil("a rule fails", async () => JSON.stringify(await (await fetch(`${server.url}/api/v1/rules`)).json()).includes('"health":"err"'));
    const { page, problems, close } = await openPage(browser, `${server.url}/jobs`, { width: 390 });
    const listed = async (title) => (await page.locator(".message", { hasText: title }).locator("li code").allInnerTexts()).map((name) => name.split(",")[0]);
    await page.getByText("Rule files of the training pack are missing.").waitFor();
    deepStrictEqual(await listed("Rule files of the training pack"), ["jobs-owner.yaml", "nodes.yaml", "alerts.yaml"]);
    deepStrictEqual(await listed("have recorded nothing yet: the configuration was loaded"), ["jobs.yaml"]);
    await page.getByText("1 rule of the training pack fails").waitFor();
    await page.getByRole("link", { name: "training:broken" }).waitFor();
    await page.getByText("No training job runs.").waitFor();
    await settle(page);
    strictEqual(await page.evaluate(() => document.scrollingElement.scrollWidth), 390);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await page.getByRole("link", { name: "training:broken" }).click();
    await page.getByRole("heading", { name: "Rules", exact: true }).waitFor();
    await close();
    await server.stop();
  });
});
