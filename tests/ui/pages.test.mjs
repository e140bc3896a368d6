// Every page with fleet data, in both themes and two widths: no errors, nothing wider than the screen, accessible.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, waitUntil, wideTables, writeFleet } from "./harness.mjs";

/** Each page with a text that it shows once its data are there. */
export const PAGES = [
  ["overview", "Healthy"],
  ["query?g0.expr=sum%20by%20(mode)%20(rate(node_cpu_seconds_total%5B5m%5D))&g0.tab=graph&g0.range_input=20m", '{mode="idle"}'],
  ["query?g0.expr=node_memory_MemAvailable_bytes&g0.tab=table", "Peak memory"],
  ["query?g0.expr=sum(rate(node_cpu_seconds_total%5B5m%5D))&g0.tab=explain", "node_cpu_seconds_total"],
  ["query?g0.expr=sum%20by%20(le)%20(rate(apiserver_request_duration_seconds_bucket%5B5m%5D))&g0.tab=graph&g0.display_mode=heatmap&g0.range_input=20m", "per bucket"],
  ["explore", "node_cpu_seconds_total"],
  ["explore?metric=node_cpu_seconds_total&label=mode", "Values of mode"],
  ["cardinality", "Pairs of label and value"],
  ["cardinality?match=%7Bjob%3D%22node-exporter%22%7D&focus=instance", "Values of instance"],
  ["churn", "New series per second"],
  ["usage", "Test of rules"],
  ["alerts", "Alertmanagers"],
  ["rules", "No rules are loaded."],
  ["targets", "Varve does not scrape."],
  ["jobs", "there are no such records"],
  ["jobs?job=a%2Fb", "there are no such records"],
  ["running", "Most expensive queries"],
  ["teams", "Active series"],
  ["senders", "Samples/s"],
  ["store", "Background tasks"],
];

describe("pages", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer({ flags: ["--self-scrape-interval=5s"] });
    writeFleet(server);
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const ask = async (query) => (await (await fetch(`${server.url}/api/v1/query?query=${encodeURIComponent(query)}`)).json()).data.result;
  /** The graphs of the server's own metrics end at a multiple of 15 s. */
  const graphEnd = () => Math.floor(Date.now() / 15_000) * 15;

  test("a narrow screen shows all columns of a table on request", async () => {
    await server.post("/api/v1/import/prometheus", 'm{a="1",a="2"} 1\n', "text/plain");
    const { page, problems, close } = await openPage(browser, `${server.url}/senders`, { width: 390 });
    const header = page.getByRole("columnheader", { name: "Last error" });
    await page.getByRole("cell", { name: "1", exact: true }).first().waitFor();
    strictEqual(await header.isVisible(), false);
    await page.getByRole("button", { name: "All columns" }).first().click();
    await header.waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("the graph of churn shows the first minutes of a server", async () => {
    const rate = () => `rate(varve_ingest_new_series_total[5m] @ ${graphEnd()})`;
    await waitUntil("the rate has a value", async () => (await ask(rate())).length === 1);
    const { page, problems, close } = await openPage(browser, `${server.url}/churn`);
    // Before, it had its first point at a multiple of six minutes.
    await page.getByRole("img", { name: "Graph of 1 series" }).waitFor();
    // All series are new in the first hour. That no label created them would be untrue.
    await page.getByText("There are no series in the hour before").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("the graphs of the store show this server, not others whose metrics it stores", async () => {
    const others = ['job="prometheus",instance="127.0.0.1:1"', 'job="varve",instance="127.0.0.1:1"'].map((labels) => `prometheus_tsdb_head_series{${labels}} 777\n`);
    const stored = await server.post("/api/v1/import/prometheus", others.join(""), "text/plain");
    strictEqual(stored.status, 204, await stored.text());
    const count = () => `count(prometheus_tsdb_head_series @ ${graphEnd()}) == 3`;
    await waitUntil("all three have a sample", async () => (await ask(count())).length === 1);
    const { page, problems, close } = await openPage(browser, `${server.url}/senders`);
    const isSeries = (answer) => answer.url().endsWith("/query_range") && answer.request().postData().includes("head_series");
    const [answer] = await Promise.all([page.waitForResponse(isSeries), page.goto(`${server.url}/store`)]);
    const { result } = (await answer.json()).data;
    deepStrictEqual(result.map(({ metric }) => [metric.job, metric.instance]), [["varve", new URL(server.url).host]]);
    await page.getByRole("link", { name: "Series in memory" }).waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("a page of a server that cannot be reached does not say that nothing runs", async () => {
    const { page, close } = await openPage(browser, `${server.url}/running`, { expected: ["ERR_FAILED"] });
    const nothing = page.getByText("No request for data runs now.");
    await nothing.waitFor();
    await page.route("**/api/v1/status/queries", (route) => route.abort());
    await page.getByRole("alert").getByText("the server cannot be reached").first().waitFor();
    await nothing.waitFor({ state: "detached" });
    await close();
  });

  test("the notification of a replay is not shown beside its progress", async () => {
    const date = new Date().toISOString();
    const texts = ["Prometheus is starting and replaying the write-ahead log (WAL).", "Configuration reload has failed."];
    const body = JSON.stringify({ status: "success", data: texts.map((text) => ({ text, date, active: true })) });
    const { page, close } = await openPage(browser, "about:blank");
    await page.route("**/api/v1/notifications", (route) => route.fulfill({ contentType: "application/json", body }));
    await page.goto(`${server.url}/teams`);
    await page.getByText("Configuration reload has failed.").waitFor();
    strictEqual(await page.getByText("replaying the write-ahead log").count(), 0);
    await close();
  });

  test("a name of the server for several teams is no value of the team label", async () => {
    const budget = { activeSeries: null, newSeriesPerSecond: null, samplesPerSecond: null };
    const of = { guaranteed: budget, maximum: budget, use: budget, borrowed: budget, samples: 0, newSeries: 0, seriesRejected: 0 };
    const teams = ["", "(rules)", "(other)", "a"].map((team) => ({ ...of, team }));
    const body = JSON.stringify({ status: "success", data: { teamLabel: "team", all: of, teams } });
    const { page, close } = await openPage(browser, "about:blank");
    await page.route("**/api/v1/status/teams", (route) => route.fulfill({ contentType: "application/json", body }));
    await page.goto(`${server.url}/teams`);
    await page.getByRole("cell", { name: "recording rules" }).waitFor();
    deepStrictEqual(await page.getByRole("region", { name: "Teams" }).getByRole("link").allInnerTexts(), ["a"]);
    await close();
  });

  test("a filter that leaves nothing can be changed", async () => {
    const { page, close } = await openPage(browser, "about:blank");
    await page.route("**/api/v1/status/advice?*", async (route) => {
      const answer = await route.fetch();
      const { data, ...others } = await answer.json();
      await route.fulfill({ json: { ...others, data: { ...data, unused: [] } } });
    });
    await page.goto(`${server.url}/usage?exploration=true`);
    await page.getByText("Everything is used.").waitFor();
    await page.getByLabel("Count exploration").uncheck();
    await page.waitForURL((url) => !url.searchParams.has("exploration"));
    await page.unroute("**/api/v1/status/advice?*");
    await page.getByLabel("Labels, too").check();
    await page.getByRole("region", { name: "Unused" }).waitFor();
    await close();
  });

  test("a metric that does not exist is said to have no series", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/explore?metric=no_such_metric`);
    await page.getByText("There is no series of this metric in memory").waitFor();
    await page.getByRole("link", { name: "All metrics" }).click();
    await page.getByRole("heading", { name: "Metrics", exact: true }).waitFor();
    strictEqual(new URL(page.url()).search, "");
    deepStrictEqual(problems, []);
    await close();
  });

  test("the choice of a time range fits a screen of 320 px", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/query?g0.expr=vector(1)&g0.tab=graph`, { width: 320 });
    await page.getByRole("button", { name: "Choose a time range" }).click();
    const box = await page.locator(".time-range").boundingBox();
    for (const part of await page.locator(".time-range button, .time-range input:not(.calendar)").all()) {
      const { x, width } = await part.boundingBox();
      ok(x >= box.x && x + width <= box.x + box.width, await part.evaluate((one) => one.outerHTML));
    }
    strictEqual(await page.evaluate(() => document.scrollingElement.scrollWidth), 320);
    deepStrictEqual(problems, []);
    await close();
  });

  test("no page is wider than a screen of 320 px, and no table needs sideways scrolling", async () => {
    for (const [path, text] of PAGES) {
      const { page, problems, close } = await openPage(browser, `${server.url}/${path}`, { width: 320 });
      await page.getByText(text, { exact: false }).first().waitFor();
      await settle(page);
      const width = await page.evaluate(() => document.scrollingElement.scrollWidth);
      ok(width <= 320, `${path} is ${width} px wide`);
      deepStrictEqual(await wideTables(page), [], path);
      deepStrictEqual(problems, [], path);
      await close();
    }
  });

  test("a list of running requests needs no sideways scrolling", async () => {
    const request = { id: 1, class: "query", stage: "running", path: "/api/v1/query_range", query: "sum by (mode) (rate(node_cpu_seconds_total[5m]))", start: "2026-01-01T00:00:00Z", end: "2026-01-08T00:00:00Z", step: "1m0s", ageSeconds: 61.2, queuedSeconds: 0.25, client: "127.0.0.1", memoryBytes: 1.5e9, memoryPeakBytes: 1.5e9, series: 100_000, samples: 5e8, user: "grafana", userAgent: "Grafana/12.0.0", dashboard: "abcdef", panel: "12", grafanaUser: "somebody" };
    const body = JSON.stringify({ status: "success", data: [request, { ...request, id: 2, path: "/api/v1/series", query: '{job!=""}', stage: "queued" }] });
    for (const width of [390, 320]) {
      const { page, close } = await openPage(browser, "about:blank", { width });
      await page.route("**/api/v1/status/queries", (route) => route.fulfill({ contentType: "application/json", body }));
      await page.goto(`${server.url}/running`);
      await page.getByRole("button", { name: "Cancel request 2" }).waitFor();
      await settle(page);
      deepStrictEqual(await wideTables(page), []);
      await page.getByRole("button", { name: "All columns" }).first().click();
      await page.getByRole("columnheader", { name: "Sent by" }).waitFor();
      await close();
    }
  });

  for (const theme of ["light", "dark"]) {
    for (const width of [1440, 390]) {
      test(`${theme}, ${width} px`, async () => {
        for (const [path, text] of PAGES) {
          const { page, problems, close } = await openPage(browser, `${server.url}/${path}`, { theme, width });
          await page.getByText(text, { exact: false }).first().waitFor();
          await settle(page);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          ok(overflow <= 0, `${path} is ${overflow} px wider than the screen`);
          deepStrictEqual(await wideTables(page), [], path);
          deepStrictEqual([...problems, ...(await violations(page))], [], path);
          await close();
        }
      });
    }
  }
});
