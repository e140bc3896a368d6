// Rules and alerts: the urgent first, filters, groups of alerts, runbooks as links, Alertmanagers with their queues.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, waitUntil, wideTables } from "./harness.mjs";

const RULES = `groups:
- name: calm
  interval: 5s
  rules:
  - {alert: Never, expr: load > 100}
  - {record: 'job:load:sum', expr: 'sum by (job) (load)'}
- name: busy
  interval: 5s
  rules:
  - {alert: NeverEither, expr: load > 1000}
  - {alert: Waits, expr: load, for: 1h, labels: {severity: info}}
  - {alert: Broken, expr: load * on (job) load}
  - alert: HighLoad
    expr: load > 5
    labels: {severity: critical}
    annotations:
      summary: Load of {{ $labels.instance }} is {{ $value }}.
      runbook_url: https://runbooks.example.org/HighLoad?by=varve
      script_url: javascript:alert(1)
`;
/** Instances above the threshold: more than a group shows at first. */
const FIRING = 23;
const PENDING = FIRING + 1;

describe("alerts", { skip: missing() }, () => {
  let server;
  let browser;
  let alertmanager;
  let received = 0;
  before(async () => {
    alertmanager = http.createServer((request, response) => {
      let body = "";
      request.on("data", (piece) => (body += piece));
      request.on("end", () => {
        received += JSON.parse(body).length;
        response.end();
      });
    });
    alertmanager.listen(0, "127.0.0.1");
    await new Promise((resolve) => alertmanager.once("listening", resolve));
    const targets = [`127.0.0.1:${alertmanager.address().port}`, "127.0.0.1:1"];
    const config = `rule_files: [rules.yml]\nrules: {wait: none}\nalerting: {alertmanagers: [{static_configs: [{targets: ${JSON.stringify(targets)}}]}]}\n`;
    server = await startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=0s"], files: { "varve.yml": config, "rules.yml": RULES } });
    const lines = Array.from({ length: FIRING }, (_, i) => `load{job="a",instance="i${i}"} ${10 + i}\n`);
    const stored = await server.post("/api/v1/import/prometheus", `${lines.join("")}load{job="b",instance="x"} 1\n`, "text/plain");
    strictEqual(stored.status, 204);
    await waitUntil("all alerts are active", async () => (await api("alerts")).alerts.length === FIRING + PENDING);
    await waitUntil("all rules are evaluated", async () => (await api("rules")).groups.every(({ rules }) => rules.every(({ health }) => health !== "unknown")));
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    alertmanager?.closeAllConnections();
    alertmanager?.close();
  });

  const api = async (path) => (await (await fetch(`${server.url}/api/v1/${path}`)).json()).data;
  const open = (path, width) => openPage(browser, `${server.url}/${path}`, { width });
  const tile = (page, name) => page.getByRole("group", { name: "State" }).getByRole("button", { name });
  /** Rules in the order of the page. */
  const names = (page) => page.locator("details.rule summary b").allInnerTexts();

  test("firing rules come first, and tiles filter", async () => {
    const { page, problems, close } = await open("rules");
    await page.locator("details.rule").first().waitFor();
    deepStrictEqual(await names(page), ["HighLoad", "Broken", "Waits", "NeverEither", "Never", "job:load:sum"]);
    deepStrictEqual(await page.getByRole("group", { name: "State" }).getByRole("button").allInnerTexts(), ["Firing 1", "Pending 1", "Inactive 2", "Failing 1", "Recording 1"].map((text) => text.replace(" ", "\n")));
    for (const [name, expected] of [["Inactive", ["NeverEither", "Never"]], ["Failing", ["Broken"]], ["Recording", ["job:load:sum"]], ["Pending", ["Waits"]], ["Firing", ["HighLoad"]]]) {
      await tile(page, name).click();
      await page.waitForFunction((n) => document.querySelectorAll("details.rule").length === n, expected.length);
      deepStrictEqual(await names(page), expected);
      strictEqual(await tile(page, name).getAttribute("aria-pressed"), "true");
      await page.getByText(`${expected.length} of 6 rules in 2 groups`).waitFor();
    }
    await tile(page, "Firing").click();
    await page.getByText("6 rules in 2 groups", { exact: true }).waitFor();
    // Red and yellow are for what needs attention.
    const tag = page.locator("details.rule", { has: page.getByText("Never", { exact: true }) }).locator(".tag");
    deepStrictEqual([await tag.innerText(), await tag.getAttribute("class")], ["inactive", "tag "]);
    deepStrictEqual(problems, []);
    await close();
  });

  test("a rule's share of its group is that of the whole group, also if a filter hides the others", async () => {
    const rule = (name, state, evaluationTime) => ({ type: "alerting", name, query: "up", state, health: "ok", duration: 0, keepFiringFor: 0, labels: {}, annotations: {}, alerts: [], evaluationTime, lastEvaluation: new Date().toISOString() });
    const groups = [{ name: "g", file: "f", interval: 60, evaluationTime: 4, lastEvaluation: new Date().toISOString(), rules: [rule("Slow", "inactive", 3), rule("Fast", "pending", 1), rule("Faster", "inactive", 0.1)] }];
    const { page, close } = await open("store");
    await page.route("**/api/v1/rules?*", (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify({ status: "success", data: { groups } }) }));
    await page.route("**/api/v1/rules", (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify({ status: "success", data: { groups } }) }));
    const times = () => page.locator("details.rule summary > :last-child").allInnerTexts();
    for (const [filter, expected] of [["", ["1 s", "3 s (73 % of the group)", "100 ms"]], ["?state=inactive", ["3 s (73 % of the group)", "100 ms"]], ["?find=faster", ["100 ms"]]]) {
      await page.goto(`${server.url}/rules${filter}`);
      await page.locator("details.rule").first().waitFor();
      deepStrictEqual(await times(), expected, filter);
    }
    await close();
  });

  test("a runbook is a link, a script is not, and the page shows a part of many alerts", async () => {
    for (const path of ["rules?state=firing", "alerts"]) {
      const { page, problems, close } = await open(path);
      const link = page.getByRole("link", { name: "https://runbooks.example.org/HighLoad?by=varve" }).first();
      await link.waitFor();
      deepStrictEqual([await link.getAttribute("href"), await link.getAttribute("rel")], ["https://runbooks.example.org/HighLoad?by=varve", "noopener noreferrer"]);
      await page.getByText("javascript:alert(1)").first().waitFor();
      strictEqual(await page.locator("#root a[href^='javascript:']").count(), 0);
      deepStrictEqual(problems, []);
      await close();
    }
    const { page, close } = await open("rules?state=firing");
    await page.getByRole("link", { name: `All ${FIRING} alerts` }).click();
    await page.getByRole("heading", { name: "Alerts", exact: true }).waitFor();
    await close();
  });

  test("alerts are grouped by name and by labels, and searched", async () => {
    const { page, problems, close } = await open("alerts");
    const headings = () => page.locator("section.card h2").allInnerTexts();
    const rows = (name) => page.getByRole("region", { name: `Alerts of ${name}` }).locator("tbody tr");
    await rows("HighLoad").first().waitFor();
    deepStrictEqual(await headings(), [`${FIRING} firing HighLoad`, `${PENDING} pending Waits`]);
    deepStrictEqual(await page.getByRole("group", { name: "State" }).getByRole("button").allInnerTexts(), [`Firing alerts\n${FIRING}`, `Pending alerts\n${PENDING}`, "Inactive rules\n2", "Failing rules\n1"]);
    await page.getByText('{job="a", severity="critical"}', { exact: true }).waitFor();
    strictEqual(await rows("HighLoad").count(), 20);
    await page.getByRole("button", { name: `Show more (${FIRING - 20} alerts left)` }).click();
    strictEqual(await rows("HighLoad").count(), FIRING);
    await rows("HighLoad").filter({ hasText: '{instance="i7"}' }).getByText("Load of i7 is 17.").waitFor();

    await page.getByLabel("Group by").selectOption("job");
    await page.getByRole("region", { name: "Alerts of a" }).waitFor();
    deepStrictEqual(await headings(), [`${FIRING} firing ${FIRING} pending a`, "1 pending b"]);
    await page.getByLabel("Group by").selectOption("alertname");

    await page.getByLabel("Search alerts").fill("instance=\"x\"");
    await page.waitForFunction(() => document.querySelectorAll("section.card h2").length === 1);
    deepStrictEqual(await headings(), ["1 pending Waits"]);
    await page.getByLabel("Search alerts").fill("");
    await tile(page, "Pending alerts").click();
    await page.waitForFunction(() => document.querySelectorAll("section.card h2").length === 1);
    deepStrictEqual(await headings(), [`${PENDING} pending Waits`]);
    await tile(page, "Inactive rules").click();
    await page.getByRole("link", { name: "NeverEither" }).waitFor();
    await tile(page, "Failing rules").click();
    await page.getByText("many-to-many").waitFor();
    await page.getByRole("link", { name: "Broken" }).click();
    await page.getByRole("heading", { name: "Rules", exact: true }).waitFor();
    await page.locator("details.rule").first().waitFor();
    deepStrictEqual(await names(page), ["Broken"]);
    deepStrictEqual(problems, []);
    await close();
  });

  test("Alertmanagers have their queues and counters", async () => {
    const { page, problems, close } = await open("alerts");
    const working = `http://127.0.0.1:${alertmanager.address().port}/api/v2/alerts`;
    const cells = async (url) => (await page.getByRole("row", { name: url }).getByRole("cell").allInnerTexts()).map((text) => text.trim());
    await page.getByRole("row", { name: working }).waitFor();
    await waitUntil("the page shows what was sent", async () => (await cells(working))[2] === String(received));
    ok(received >= FIRING, `${received} alerts`);
    deepStrictEqual((await cells(working)).slice(0, 5), [working, "0 of 10k", String(received), "0", "0"]);
    const [, , sent, errors, dropped, time] = await cells("http://127.0.0.1:1/api/v2/alerts");
    strictEqual(sent, "0");
    ok(Number(errors) >= FIRING && Number(dropped) >= FIRING, `${errors} errors, ${dropped} dropped`);
    strictEqual(time, "–");
    deepStrictEqual(problems, []);
    await close();
  });

  for (const width of [1440, 390, 320]) {
    test(`pages of alerts and rules fit and are accessible, ${width} px`, async () => {
      for (const path of ["alerts", "alerts?state=inactive", "alerts?by=job", "rules", "overview"]) {
        const { page, problems, close } = await open(path, width);
        await settle(page);
        strictEqual(await page.evaluate(() => document.scrollingElement.scrollWidth), width, path);
        deepStrictEqual(await wideTables(page), [], path);
        deepStrictEqual([...problems, ...(await violations(page))], [], path);
        await close();
      }
    });
  }
});
