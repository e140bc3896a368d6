// Every number on the pages, against the API, on data where a wrong one differs: each count of the data is different.
// The numbers of the query page are in query.test.mjs, those of rules and alerts in alerts.test.mjs.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { missing, openPage, startBrowser, startServer } from "./harness.mjs";

const ui = join(import.meta.dirname, "../../bin/ui");
const CONFIG = `rule_files: [rules.yml]
rules: {wait: none}
ingest:
  team_label: team
  budget: {active_series: 500, new_series_per_second: 1000, samples_per_second: 7000}
  teams:
    red: {guaranteed: {active_series: 5}, maximum: {active_series: 20}}
`;
const RULES = `groups:
- name: g
  interval: 1h
  rules:
  - {record: 'team:cpu:sum', expr: 'sum by (team) (cpu)'}
  - {record: 'b:low', expr: 'sum(b_bucket{le="1"})'}
`;
const WAIT_MS = 20_000;

/** Series of a metric: one for each value of the label `i`. */
const series = (metric, team, n) => Array.from({ length: n }, (_, i) => `${metric}{team="${team}",job="j-${team}",i="${i}"} ${i}\n`).join("");

describe("numbers", { skip: missing() }, () => {
  let server;
  let browser;
  /** The page's own formats, whose unit tests are in bin/ui/test. */
  let format;
  before(async () => {
    const { transform } = createRequire(join(ui, "package.json"))("esbuild");
    const { code } = await transform(await readFile(join(ui, "src/parts/format.ts"), "utf8"), { loader: "ts", format: "esm" });
    format = await import(`data:text/javascript,${encodeURIComponent(code)}`);
    server = await startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=0s", "--web.enable-admin-api"], files: { "varve.yml": CONFIG, "rules.yml": RULES } });
    const write = (body, agent) => fetch(`${server.url}/api/v1/import/prometheus`, { method: "POST", body, headers: { "Content-Type": "text/plain", "User-Agent": agent } });
    strictEqual((await write(series("cpu", "red", 13) + series("cpu", "blue", 7) + series("mem", "blue", 3), "first")).status, 204);
    strictEqual((await write(series("disk", "green", 5) + "b_bucket{le=\"0.5\"} 1\nb_bucket{le=\"1\"} 1\nb_bucket{le=\"+Inf\"} 2\n", "second")).status, 204);
    // Blocks, so that sizes on disk are not 0; then samples in memory only.
    ok((await fetch(`${server.url}/api/v1/admin/tsdb/compact`, { method: "POST" })).ok);
    strictEqual((await write(series("cpu", "red", 11), "second")).status, 204);
    // Rejected: a duplicate label, and series above the maximum of the team red.
    strictEqual((await write('bad{a="1",a="2"} 1\n', "third")).status, 400);
    strictEqual((await write(series("net", "red", 29), "third")).status, 400);
    for (const query of ["sum(cpu)", "sum(mem)", "sum(mem)", "count(", "sum by (team) (cpu)"]) await fetch(`${server.url}/api/v1/query?query=${encodeURIComponent(query)}`);
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const api = async (path) => (await (await fetch(`${server.url}/api/v1/${path}`)).json()).data;
  const figures = (page) => page.evaluate(() => Object.fromEntries([...document.querySelectorAll("dl.figures > div")].map((one) => [one.querySelector("dt").innerText, one.querySelector("dd").innerText])));
  const rows = (page, caption) =>
    page.evaluate((name) => {
      const table = [...document.querySelectorAll("table.data")].find((one) => one.caption?.innerText === name);
      return [...(table?.tBodies[0].rows ?? [])].map((row) => [...row.cells].map((cell) => cell.innerText.replaceAll("\n", " ").replaceAll("​", "").trim()));
    }, caption);
  const counters = async () => {
    const families = await api("status/self_metrics");
    return (name, labels = {}) =>
      families
        .filter((family) => family.name === name)
        .flatMap(({ metric }) => metric)
        .filter(({ label = [] }) => Object.entries(labels).every(([key, value]) => label.some((one) => one.name === key && one.value === value)))
        .reduce((sum, { counter, gauge }) => sum + (counter ?? gauge).value, 0);
  };
  const byNumber = (list, number) => [...list].sort((a, b) => number(b) - number(a));
  /** Rows without an order: equal numbers have none. */
  const sorted = (list) => [...list].sort((a, b) => (String(a) < String(b) ? -1 : 1));

  /**
   * Opens a page and compares until its numbers are those of the API: both change while a test runs. `expected` gets the
   * latest response to the page for a path: rates change with each millisecond.
   */
  async function check(path, shown, expected) {
    const { page, problems, close } = await openPage(browser, `${server.url}/${path}`);
    const responses = new Map();
    page.on("response", async (response) => {
      const { data } = await response.json().catch(() => ({}));
      responses.set(new URL(response.url()).pathname.replace("/api/v1/", ""), data);
    });
    const latest = (target) => responses.get(target);
    const deadline = Date.now() + WAIT_MS;
    for (;;) {
      const [found, wanted] = [await shown(page), await expected(latest)];
      try {
        deepStrictEqual(found, wanted, path);
        break;
      } catch (error) {
        if (Date.now() > deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
    deepStrictEqual(problems, [], path);
    await close();
  }

  for (const selector of ["", '{team="red"}']) {
    test(`cardinality of ${selector || "all series"}`, async () => {
      const { bytes, count, percent } = format;
      const match = selector === "" ? "" : `match=${encodeURIComponent(selector)}&`;
      const share = (cost, total) => [`${count(cost.series)} (${percent(cost.series / total.series)})`, bytes(cost.memoryBytes), bytes(cost.diskBytes)];
      await check(
        `cardinality?${match}focus=i`,
        async (page) => [await figures(page), ...(await Promise.all(["metrics", "labels", "pairs", "values"].map(async (name) => sorted((await rows(page, name)).map((row) => row.map((cell) => cell.replace(/^\d+[smh] ago$/, "used")))))))],
        async () => {
          const data = await api(`status/cardinality?limit=1000&focus=i&${selector === "" ? "" : `match[]=${encodeURIComponent(selector)}`}`);
          const largest = byNumber(data.labels, ({ values }) => values)[0];
          const { total } = data;
          return [
            { Series: count(total.series), Metrics: count(data.metricCount), Labels: count(data.labelCount), Memory: bytes(total.memoryBytes), Disk: bytes(total.diskBytes), "Largest label": `${largest.name}: ${count(largest.values)} values` },
            sorted(byNumber(data.metrics, ({ cost }) => cost.series).map(({ name, cost, lastUsedMs }) => [name, ...share(cost, total), lastUsedMs ? "used" : "not used"])),
            sorted(data.labels.map(({ name, values, cost }) => [name, count(values), bytes(cost.memoryBytes), bytes(cost.diskBytes)])),
            sorted(byNumber(data.pairs, ({ cost }) => cost.series).slice(0, 20).map(({ name, value, cost }) => [`${name}=${value}`, ...share(cost, total)])),
            sorted(data.values.map(({ value, cost }) => [value, ...share(cost, total)])),
          ];
        },
      );
    });
  }

  test("churn", async () => {
    const { count, percent } = format;
    await check(
      "churn",
      async (page) => {
        const { Hour: _, ...others } = await figures(page);
        return [others, sorted(await rows(page, "New series of teams")), sorted(await rows(page, "Metrics with new series"))];
      },
      async () => {
        const data = await api("status/churn");
        return [
          { Series: count(data.series), "New series": count(data.newSeries), Share: percent(data.newSeries / data.series), "New combinations": count(data.newCombinations) },
          sorted(data.teams.map(({ team, newSeries, label, percent: part, metric }) => [team || "no team", count(newSeries), label === "" ? "new combinations" : `${label} (${percent(part / 100)})`, metric])),
          sorted(data.metrics.map(({ metric, newSeries, label, percent: part }) => [metric, count(newSeries), label === "" ? "–" : `${label} (${percent(part / 100)})`])),
        ];
      },
    );
  });

  test("usage", async () => {
    const { bytes, count, percent, short } = format;
    await check(
      "usage",
      async (page) => {
        const { "Record began": _, ...others } = await figures(page);
        return [others, sorted(await rows(page, "Unused"))];
      },
      async () => {
        const { totals, unused } = await api("status/advice");
        ok(totals.unusedSeries > totals.unusedMetricSeries, "there are unused buckets");
        return [
          {
            "Unused metrics": `${count(totals.unusedMetrics)} of ${count(totals.metrics)}`,
            "Unused series": `${count(totals.unusedSeries)} of ${count(totals.series)} (${percent(totals.unusedSeries / totals.series)})`,
            "≈ Samples/s": `${short(totals.unusedSamplesPerSecond)} of ${short(totals.samplesPerSecond)}`,
            "≈ Disk over retention": bytes(totals.unusedBytes),
          },
          sorted(unused.map(({ metric, kind, buckets, job, series: n, samplesPerSecond, bytes: size }) => [metric, kind === "buckets" ? `${buckets.length} bucket${buckets.length === 1 ? "" : "s"}` : kind, job, count(n), short(samplesPerSecond), bytes(size)])),
        ];
      },
    );
  });

  test("teams and rejects", async () => {
    const { count } = format;
    const names = { "": "no team", "(rules)": "recording rules", "(other)": "all other teams" };
    await check(
      "teams",
      async (page) => [await figures(page), sorted(await rows(page, "Teams")), (await rows(page, "Rejects")).map(([reason, n, requests]) => [reason.split(" ")[0], n, requests])],
      async () => {
        const [{ all, teams }, { rejects }] = [await api("status/teams"), await api("status/rejects")];
        const use = (of, key) => `${count(of.use[key] ?? 0)}${of.maximum[key] === null ? "" : ` of ${count(of.maximum[key])}`}`;
        return [
          { "Active series": use(all, "activeSeries"), "New series/s": use(all, "newSeriesPerSecond"), "Samples/s": use(all, "samplesPerSecond"), "Samples since startup": count(all.samples), "Series rejected": count(all.seriesRejected) },
          sorted(teams.map((team) => [names[team.team] ?? team.team, use(team, "activeSeries"), team.guaranteed.activeSeries === null ? "–" : count(team.guaranteed.activeSeries), count(team.borrowed.activeSeries ?? 0), use(team, "newSeriesPerSecond"), use(team, "samplesPerSecond"), count(team.seriesRejected)])),
          rejects.map(({ reason, count: n, requests }) => [reason, count(n), count(requests)]),
        ];
      },
    );
  });

  test("senders", async () => {
    const { count, seconds, short } = format;
    await check(
      "senders",
      async (page) => [await figures(page), sorted((await rows(page, "Senders")).map(([sender, , rate, series, samples, requests, , lag, , failed]) => [sender, rate, series, samples, requests, lag, failed]))],
      async (latest) => {
        strictEqual((await api("status/senders")).senders.length, 3);
        const { senders } = latest("status/senders") ?? { senders: [] };
        const lags = senders.flatMap(({ lagMs }) => lagMs ?? []);
        return [
          { Senders: count(senders.length), "Samples/s": short(senders.reduce((sum, { samplesPerSecond }) => sum + samplesPerSecond, 0)), Silent: count(senders.filter(({ lastMs }) => Date.now() - lastMs > 120_000).length), "Largest lag": seconds(Math.max(...lags) / 1000), "With errors": count(senders.filter(({ failed }) => failed > 0).length) },
          sorted(senders.map(({ address, userAgent, samplesPerSecond, series, samples, requests, lagMs, failed }) => [`${address} ${userAgent}`, short(samplesPerSecond), short(series, 3), count(samples), count(requests), lagMs === null ? "–" : seconds(lagMs / 1000), count(failed)])),
        ];
      },
    );
  });

  test("running queries", async () => {
    const { bytes, count, seconds } = format;
    await check(
      "running",
      async (page) => {
        const { "Mean wait for a permit": _, ...others } = await figures(page);
        return [others, sorted((await rows(page, "Most expensive queries")).map((row) => row.slice(0, 7)))];
      },
      async () => {
        const [n, { queries }] = [await counters(), await api("status/top_queries?range=hour")];
        const waited = (await api("status/self_metrics?metric_name_pattern=varve_request_queue_duration_seconds"))[0].metric.find(({ label }) => label[0].value === "query").histogram;
        return [
          { "Queries now": count(n("prometheus_engine_queries")), "Allowed at a time": count(n("prometheus_engine_queries_concurrent_max")), "Queries since startup": count(Number(waited.sampleCount ?? waited.sample_count)), "Shared results": count(n("varve_requests_coalesced_total", { class: "query" })) },
          sorted(queries.map((one) => [one.shape, seconds(one.seconds), count(one.queries), seconds(one.secondsMax), bytes(one.memoryPeakBytes), count(one.samples), count(one.failed)])),
        ];
      },
    );
  });

  test("store", async () => {
    const { bytes, count, percent } = format;
    await check(
      "store",
      async (page) => {
        // Those of memory and of the volume change with each request, also of other programs.
        const { "Memory in use": memory, "Free space": free, Head: _, ...others } = await figures(page);
        const tasks = await rows(page, "Background tasks");
        return [others, /^[\d.]+ [KMG]iB \(.+ %\)$/.test(memory) && /^[\d.]+ [GT]iB \(\d.* %\)$/.test(free), tasks, (await rows(page, "Blocks")).length];
      },
      async () => {
        const [n, { blocks }] = [await counters(), await api("status/tsdb/blocks")];
        const [size, log, samples] = [n("prometheus_tsdb_storage_blocks_bytes"), n("prometheus_tsdb_wal_storage_size_bytes"), n("varve_tsdb_blocks_samples")];
        ok(size > 0 && log > 0 && samples > 0 && percent(0.5) === "50 %");
        return [
          { "Series in memory": count(n("prometheus_tsdb_head_series")), Disk: bytes(size + log), "Samples in blocks": count(samples), "Bytes per sample": (size / samples).toFixed(2), "Log not written": bytes(n("varve_tsdb_wal_pending_bytes")) },
          true,
          [
            ["Replay", `done, ${count(n("varve_tsdb_replayed_series"))} series and ${count(n("varve_tsdb_replayed_samples"))} samples`],
            ["Damaged bytes of the log, quarantined", bytes(n("varve_tsdb_replayed_damaged_bytes"))],
            ["Compactions", count(n("prometheus_tsdb_compactions_total"))],
            ["Failed compactions", count(n("prometheus_tsdb_compactions_failed_total"))],
            ["Panics of background tasks", count(n("varve_tsdb_background_panics_total"))],
            ["Damaged blocks", count(n("varve_tsdb_blocks_damaged"))],
            ["Blocks held by retention", count(n("varve_tsdb_blocks_held"))],
            ["Blocks removed by retention", count(n("varve_tsdb_blocks_expired_total"))],
            ["Samples dropped by merge conflicts", count(n("varve_tsdb_merge_conflicts_total"))],
            ["Failed self-scrapes", count(n("varve_self_scrapes_failed_total"))],
          ],
          blocks.length,
        ];
      },
    );
  });

  test("overview", async () => {
    const { bytes, count, short } = format;
    await check(
      "overview",
      (page) =>
        page.evaluate(() => Object.fromEntries([...document.querySelectorAll(".tile")].map((one) => [one.querySelector(".tile-title").innerText, [one.querySelector(".tile-value").innerText, one.querySelector(".muted").innerText]]).map(([name, [value, note]]) => [name, /^(Memory in use|Disk)$/.test(name) ? value.replace(/^[\d.]+ (?=[KMG]iB)/, name === "Disk" ? "$&" : "") : /^(Samples\/s|Series in memory|Queries now)$/.test(name) ? [value, note] : value]))),
      async (latest) => {
        const [n, { senders }, { rejects }] = [await counters(), latest("status/senders") ?? { senders: [] }, await api("status/rejects")];
        return {
          "Samples/s": [short(senders.reduce((sum, { samplesPerSecond }) => sum + samplesPerSecond, 0)), `of ${senders.length} senders`],
          "Series in memory": [count(n("prometheus_tsdb_head_series")), "at most 500 active (ingest.budget)"],
          "Queries now": [count(n("prometheus_engine_queries")), `at most ${count(n("prometheus_engine_queries_concurrent_max"))} at a time; the line shows queries per second`],
          "Rejects since startup": count(rejects.reduce((sum, one) => sum + one.count, 0)),
          "Memory in use": bytes(n("varve_memory_used_bytes")).replace(/^[\d.]+ /, ""),
          Disk: bytes(n("prometheus_tsdb_storage_blocks_bytes") + n("prometheus_tsdb_wal_storage_size_bytes")),
          "Late senders": count(senders.filter(({ lastMs, lagMs }) => Date.now() - lastMs > 120_000 || lagMs > 300_000).length),
        };
      },
    );
  });
});
