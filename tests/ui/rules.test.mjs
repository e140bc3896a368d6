// The page of rules: why an alert fires or does not, and when it would have fired.

import { deepStrictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, waitUntil } from "./harness.mjs";

const rules = `
groups:
- name: own_rules_with_a_name_wider_than_a_phone_and_no_space
  interval: 5s
  rules:
  - {alert: Runs, expr: varve_build_info == 1, labels: {severity: info}}
  - {alert: Never, expr: varve_build_info > 5}
  - {alert: Waits, expr: varve_build_info, for: 1h}
  - {alert: Absent, expr: sum by (job) (no_such_metric) > 0}
`;

/** A rule, the question, and why it fires or does not. */
const REASONS = [
  ["Runs", "Why does it fire?", "1 alert fires."],
  ["Never", "Why does it not fire?", "none of 1 series passes the comparison in varve_build_info > 5."],
  ["Waits", "Why does it fire?", /^1 alert is pending: it fires in \S+ \(for: 1h\)\.$/],
  ["Absent", "Why does it not fire?", "no series match no_such_metric."],
];

describe("rules page", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    const files = { "varve.yml": "rule_files: [rules.yml]\nrules: {wait: none}\n", "rules.yml": rules };
    server = await startServer({ flags: ["--config.file=DIR/varve.yml", "--self-scrape-interval=1s"], files });
    await waitUntil("an alert fires", async () => {
      const { data } = await (await fetch(`${server.url}/api/v1/alerts`)).json();
      return data.alerts.length === 2;
    });
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  for (const width of [1440, 390]) {
    test(`an alert is explained and backtested, ${width} px`, async () => {
      const { page, problems, close } = await openPage(browser, `${server.url}/rules`, { width });
      for (const [name, question, reason] of REASONS) {
        const rule = page.locator("details.rule").filter({ has: page.locator("summary b", { hasText: name }) });
        await rule.waitFor();
        if (!(await rule.evaluate(({ open }) => open))) await rule.locator("summary").click();
        await rule.getByRole("button", { name: question }).click();
        await rule.getByText(reason, { exact: true }).waitFor();
        await rule.locator("table.explain tbody tr").first().waitFor();
        await rule.getByRole("button", { name: "Backtest" }).click();
        const outcome = name === "Runs" ? rule.getByRole("cell", { name: "still firing" }) : rule.getByText(/^It would not have fired in \S+ evaluations\.$/);
        await outcome.waitFor();
      }
      await settle(page);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      deepStrictEqual([...problems, ...(await violations(page)), overflow], [0]);
      await close();
    });
  }
});
