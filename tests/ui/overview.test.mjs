// The overview: what it says of a healthy server and of one with problems, and where its links lead.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, waitUntil } from "./harness.mjs";

const RULES = `groups:
- name: own
  interval: 5s
  rules:
  - {alert: Runs, expr: 'vector(1) or vector(1)', labels: {severity: info}}
  - {alert: Waits, expr: vector(1), for: 1h}
  - {alert: Never, expr: vector(1) > 2}
`;
/** Tiles, and the page that each opens. */
const TILES = [["Samples/s", "senders"], ["Series in memory", "cardinality"], ["Queries now", "running"], ["Rejects since startup", "teams"], ["Memory in use", "store"], ["Disk", "store"], ["Late senders", "senders"]];

const json = (data) => ({ contentType: "application/json", body: JSON.stringify({ status: "success", data }) });

describe("overview", { skip: missing() }, () => {
  let server;
  let quiet;
  let browser;
  before(async () => {
    const files = { "varve.yml": "rule_files: [rules.yml]\nrules: {wait: none}\n", "rules.yml": RULES };
    [server, quiet, browser] = await Promise.all([
      startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=1s"], files }),
      startServer({ flags: ["--self-scrape-interval=0s"] }),
      startBrowser(),
    ]);
    await waitUntil("both alerts are active", async () => (await (await fetch(`${server.url}/api/v1/alerts`)).json()).data.alerts.length === 2);
  });
  after(async () => {
    await browser?.close();
    await Promise.all([server?.stop(), quiet?.stop()]);
  });

  const tile = (page, title) => page.locator(".tile", { has: page.getByText(title, { exact: true }) });

  test("it is the first page: healthy, what fires, and figures that link to their pages", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/`);
    await page.getByText("Healthy").waitFor();
    ok(page.url().endsWith("/overview"), page.url());
    await page.getByRole("link", { name: "Runs" }).waitFor();
    await page.getByText(`Nobody has written since startup. Prometheus and other remote-write senders write to ${server.url}/api/v1/write`).waitFor();
    await page.getByRole("link", { name: "1 pending alert" }).waitFor();
    strictEqual(await page.getByText("Never").count(), 0);
    for (const [title, target] of TILES) strictEqual(await tile(page, title).getAttribute("href"), target, title);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("heading", { name: "1 firing Runs" }).waitFor();
    await close();
  });

  test("graphs are those of the server's own metrics of the last hour", async () => {
    await waitUntil("two steps have values", async () => {
      const end = Math.floor(Date.now() / 15_000) * 15;
      const { data } = await (await fetch(`${server.url}/api/v1/query_range?query=varve_memory_used_bytes&start=${end - 3600}&end=${end}&step=15`)).json();
      return data.result[0]?.values.length > 1;
    });
    const { page, problems, close } = await openPage(browser, `${server.url}/overview`);
    await page.getByRole("img", { name: /^Memory in use in the last hour: at most [\d.]+ MiB, [\d.]+ MiB at the end$/ }).waitFor();
    await page.getByRole("img", { name: /^Series in memory in the last hour/ }).waitFor();
    strictEqual(await page.getByText("Graphs and the forecast of the disk are missing").count(), 0);
    deepStrictEqual(problems, []);
    await close();
  });

  test("without the self-scrape it says what is missing, and shows the other figures", async () => {
    await quiet.post("/api/v1/import/prometheus", 'a{x="1"} 1\na{x="2"} 1\na{x="3"} 1\n', "text/plain");
    const { page, problems, close } = await openPage(browser, `${quiet.url}/overview`);
    await page.getByText("because --self-scrape-interval is 0").waitFor();
    await page.getByText("No alerting rules are loaded.").waitFor();
    match(await tile(page, "Series in memory").innerText(), /\b3\b/);
    strictEqual(await page.locator("svg.spark").count(), 0);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("problems, rejects, late senders and a volume that fills up stand out", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/store`);
    const now = Date.now();
    const sender = { address: "10.0.0.1", user: "", userAgent: "Prometheus/3", path: "/api/v1/write", firstMs: 1, requests: 1, samples: 1, deduplicated: 0, samplesPerSecond: 12.5, failed: 0, lastError: "", lastErrorMs: 0, newestSampleMs: now, sameSeries: [] };
    const senders = [
      { ...sender, user: "prompt", lastMs: now, lagMs: 1000 },
      { ...sender, user: "silent", lastMs: now - 130_000, lagMs: 1000 },
      { ...sender, user: "behind", lastMs: now, lagMs: 400_000 },
      { ...sender, user: "unknown", lastMs: now, lagMs: null },
    ];
    const reject = { reason: "out_of_order", message: "", requests: 3, count: 41, samples: 41, lastMs: now - 5000, example: null, sender: {} };
    await page.route("**/api/v1/status/senders", (route) => route.fulfill(json({ senders })));
    await page.route("**/api/v1/status/rejects", (route) => route.fulfill(json({ rejects: [reject, { ...reject, reason: "old", count: 1 }] })));
    await page.route("**/api/v1/notifications", (route) => route.fulfill(json([{ text: "Configuration reload has failed.", date: new Date().toISOString(), active: true }])));
    await page.route("**/api/v1/query", async (route) => {
      const query = new URLSearchParams(route.request().postData()).get("query");
      const value = query.includes("deriv(") ? 7200 : query.includes("timestamp(") ? 3600 : query.includes("notifications_dropped") ? 4 : undefined;
      await (value === undefined ? route.continue() : route.fulfill(json({ resultType: "vector", result: [{ metric: {}, value: [0, String(value)] }] })));
    });
    await page.goto(`${server.url}/overview`);
    const health = page.getByRole("status").filter({ hasText: "2 problems" });
    await health.getByText("An Alertmanager does not take alerts").waitFor();
    await health.getByText("Configuration reload has failed.").waitFor();
    strictEqual(await page.getByText("Configuration reload has failed.").count(), 1, "said once");
    await page.getByText("full in 2 hours at the rate of the last 60 min").waitFor();
    const bad = await page.locator(".tile.bad").allInnerTexts();
    deepStrictEqual(bad.map((text) => text.split("\n").slice(0, 2)), [["Rejects since startup", "42"], ["Disk", bad[1].split("\n")[1]], ["Late senders", "2"]]);
    match(bad[2], /silent · 10\.0\.0\.1 Prometheus\/3, behind · 10\.0\.0\.1 Prometheus\/3/);
    match(await tile(page, "Samples/s").innerText(), /50\nof 4 senders/);
    await settle(page);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("the query page is one key away, and back", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/overview`);
    await page.getByText("Healthy").waitFor();
    await page.keyboard.press("/");
    await page.getByRole("button", { name: "Run" }).waitFor();
    await page.waitForFunction(() => document.activeElement?.shadowRoot?.activeElement);
    await page.keyboard.type("vector(42)");
    await page.keyboard.press("Control+Enter");
    await page.getByRole("cell", { name: "42", exact: true }).waitFor();
    await page.getByRole("link", { name: "Varve, overview" }).click();
    await page.getByText("Healthy").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });
});
