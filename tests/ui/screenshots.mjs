// Pictures of the page with fleet data.
//   npm --prefix bin/ui run screenshots              the pictures of the README, into docs/images
//   npm --prefix bin/ui run screenshots -- DIR       every page in both themes, 1440, 390 and 320 px wide, into DIR

import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { missing, openPage, settle, startBrowser, startServer, writeFleet } from "./harness.mjs";
import { CLUSTER, addCluster, nodeName, recorder, send } from "./training.mjs";

const [dir] = process.argv.slice(2);
const README = join(import.meta.dirname, "../../docs/images");
/** Bytes of a picture of the README. */
const SIZE_MAX = 200_000;
const CPU = "sum by (mode) (rate(node_cpu_seconds_total[5m]))";
const graph = (expr, more = "") => `query?g0.expr=${encodeURIComponent(expr)}&g0.tab=graph&g0.range_input=3h${more}`;
const LATENCY = "sum by (le) (rate(apiserver_request_duration_seconds_bucket[5m]))";

const PAGES = {
  overview: "overview",
  empty: "query",
  graph: graph(CPU),
  stacked: graph(CPU, "&g0.display_mode=stacked"),
  bars: graph(CPU, "&g0.display_mode=bars&g0.res_density=low"),
  "heat-map": graph(LATENCY, "&g0.display_mode=heatmap"),
  many: graph("rate(node_softirqs_functions_total[5m])"),
  several: graph(CPU, "&g0.expr2=sum(node_load1)&g0.y_min=0"),
  samples: graph("node_load1", "&g0.display_mode=points&g0.range_input=15m"),
  tree: graph('sum by (instance) (rate(node_cpu_seconds_total{mode="user"}[5m])) / on (instance) node_load1{instance=~".*[13579].*"}', "&g0.show_tree=1"),
  unknown: "query?g0.expr=node_lod1",
  table: "query?g0.expr=node_memory_MemAvailable_bytes&g0.tab=table",
  explain: `query?g0.expr=${encodeURIComponent(`histogram_quantile(0.99, ${LATENCY})`)}&g0.tab=explain`,
  error: "query?g0.expr=sum%20by%20(mode)%20(rate(node_cpu_seconds_total%5B5m%5D)",
  metrics: "explore",
  metric: "explore?metric=container_memory_failures_total&label=pod",
  cardinality: "cardinality",
  "cardinality-focus": "cardinality?match=%7Bjob%3D%22kubelet%22%7D&focus=pod",
  churn: "churn",
  usage: "usage",
  alerts: "alerts",
  "alerts-severity": "alerts?by=severity",
  rules: "rules",
  targets: "targets",
  jobs: "jobs",
  job: `jobs?job=${encodeURIComponent(CLUSTER.job)}`,
  nodes: "jobs?view=nodes",
  running: "running",
  teams: "teams",
  senders: "senders",
  store: "store",
};

const RULES = `groups:
- name: nodes
  interval: 5s
  rules:
  - {record: 'instance:node_cpu:rate5m', expr: 'sum by (instance) (rate(node_cpu_seconds_total[5m]))'}
  - {alert: HighLoad, expr: node_load1 > 10, labels: {severity: warning}, annotations: {summary: 'Load of {{ $labels.instance }} is {{ $value }}.', runbook_url: 'https://runbooks.example.org/HighLoad'}}
  - {alert: NoMemory, expr: node_memory_MemAvailable_bytes < 1e9, for: 5m, labels: {severity: critical}}
  - {alert: Waits, expr: count(node_load1) > 0, for: 1h}
`;
const CONFIG = `rule_files: [rules.yaml]
rules: {wait: none}
alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:1']}]}]}
ingest:
  team_label: namespace
  budget: {active_series: 100000, new_series_per_second: 20000}
  teams:
    monitoring: {guaranteed: {active_series: 10000}, maximum: {active_series: 30000}}
    kube-system: {maximum: {active_series: 20000}}
  metric_relabel_configs:
  - {name: iptables, action: drop, source_labels: [__name__], regex: iptables_.*, state: dry_run}
`;

async function main() {
  const reason = missing();
  if (reason) return console.log(`skipped: ${reason}`);
  const server = await startServer({ flags: ["--config.file", "DIR/varve.yaml", "--self-scrape-interval=5s"], files: { "varve.yaml": CONFIG, "rules.yaml": RULES } });
  writeFleet(server, { duration: "240m" });
  const headers = { "User-Agent": "Grafana/12.3", "X-Dashboard-Uid": "node-exporter" };
  for (const metric of ["node_load1", "node_memory_MemAvailable_bytes", "node_filesystem_avail_bytes"]) {
    await fetch(`${server.url}/api/v1/query?query=sum%20by%20(instance)%20(${metric})`, { headers });
  }
  await server.post("/api/v1/import/prometheus", 'm{a="1",a="2"} 1\n', "text/plain");
  await server.post("/api/v1/import/prometheus", scrapes(), "text/plain");
  await send(server, jobs());
  const browser = await startBrowser();
  if (dir) await all(browser, server.url);
  else await readme(browser, server.url);
  await browser.close();
  await server.stop();
}

/** The series `up` of two jobs, of which some targets are down, and those of their scrapes. */
function scrapes() {
  const lines = [["node-exporter", 9], ["apiserver", 3]].flatMap(([job, n]) =>
    Array.from({ length: n }, (_, i) => {
      const labels = `{job="${job}",instance="10.0.0.${i}:9100",namespace="monitoring"}`;
      return `up${labels} ${i % 4 === 3 ? 0 : 1}\nscrape_duration_seconds${labels} 0.0${i + 1}\nscrape_samples_scraped${labels} ${1000 + i * 37}\n`;
    }),
  );
  return lines.join("");
}

/** Training jobs, one of 24 nodes, and two nodes that fail again and again. */
function jobs() {
  const data = recorder();
  addCluster(data, { jobs: 60, nodes: 24 });
  for (const [i, score, incidents, minutes] of [[13, 17.5, 15, 150], [3, 2, 2, 0]]) {
    const parts = { lemon_score: score, incidents, straggler_minutes: minutes };
    for (const [name, value] of Object.entries(parts)) data.add(`training:node:${name}:30d`, { node: nodeName(i) }, value, 600, 600);
  }
  return data;
}

async function take(browser, url, path, options, fullPage) {
  const { page, close } = await openPage(browser, url, options);
  await settle(page);
  await page.waitForTimeout(700);
  await page.screenshot({ path, fullPage });
  await close();
}

async function all(browser, url) {
  await mkdir(dir, { recursive: true });
  for (const theme of ["light", "dark"]) {
    for (const width of [1440, 390, 320]) {
      for (const [name, path] of Object.entries(PAGES)) {
        await take(browser, `${url}/${path}`, join(dir, `${name}-${theme}-${width}.png`), { theme, width }, true);
      }
    }
  }
}

async function readme(browser, url) {
  await mkdir(README, { recursive: true });
  for (const name of ["graph", "cardinality"]) {
    const path = join(README, `${name === "graph" ? "query" : name}.png`);
    await take(browser, `${url}/${PAGES[name]}`, path, { theme: "light", width: 1280, height: 800 }, false);
    const { size } = await stat(path);
    if (size > SIZE_MAX) throw new Error(`${path} has ${size} bytes, more than ${SIZE_MAX}`);
  }
}

await main();
