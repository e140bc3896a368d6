// Users of a tenant: the page shows their series and rules, nothing of another tenant, and does not break on what they may not read.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations } from "./harness.mjs";

const TENANTS = ["a", "b"];
const WEB = `tenants:
${TENANTS.map((name) => `- {users: [${name}], matchers: '{team="${name}"}', labels: {team: ${name}}}`).join("\n")}
bearer_tokens:
- {name: admin, token: admin, scopes: [read, write, admin]}
${TENANTS.map((name) => `- {name: ${name}, token: token-${name}, scopes: [read, write]}`).join("\n")}
`;
const RULES = `groups:
- name: group
  interval: 5s
  rules:
${TENANTS.map((name) => `  - {alert: AlertOf_${name}, expr: 'vector(1)', labels: {team: ${name}}, annotations: {summary: only_${name}}}`).join("\n")}
`;
const WHOLE_SERVER = ["cardinality", "churn", "usage", "running", "teams", "senders", "store"];
/** Pages of tenants, each with a text that it shows a user of the tenant a. */
const PAGES = [
  ["query?g0.expr=%7B__name__%3D~%22.%2B%22%7D&g0.tab=table", "only_a"],
  ["query?g0.expr=%7B__name__%3D~%22.%2B%22%7D&g0.tab=graph", "only_a"],
  ["query?g0.expr=sum(shared)&g0.tab=explain", "Operator"],
  ["explore", "secret_a"],
  ["explore?metric=shared&label=only", "only_a"],
  ["explore?metric=secret_a", "Help of a"],
  ["rules", "AlertOf_a"],
  ["alerts", "AlertOf_a"],
  ["targets", "target_a"],
  ["jobs", "job_a"],
];

describe("tenants", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    const files = { "web.yml": WEB, "rules.yml": RULES, "varve.yml": "rule_files: [rules.yml]\nrules: {wait: none}\n" };
    server = await startServer({ flags: ["--web.config.file", "DIR/web.yml", "--config.file", "DIR/varve.yml"], files, token: "admin" });
    // A graph ends at a multiple of its step, so before now.
    const at = Date.now() - 60_000;
    for (const name of TENANTS) {
      const body = `# HELP secret_${name} Help of ${name}\n# TYPE secret_${name} gauge\nsecret_${name}{only="only_${name}"} 1 ${at}\nshared{only="only_${name}"} 1 ${at}\nup{job="j",instance="target_${name}"} 1 ${at}\ntraining:job:gpus{job_id="job_${name}",state="allocated"} 1 ${at}\n`;
      const headers = { Authorization: `Bearer token-${name}`, "Content-Type": "text/plain" };
      strictEqual((await fetch(`${server.url}/api/v1/import/prometheus`, { method: "POST", body, headers })).status, 204);
    }
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const open = async (path, width) => {
    const opened = await openPage(browser, `${server.url}/${path}`, { expected: ["401", "403"], width });
    await opened.page.getByLabel("Token or password").fill("token-a");
    await opened.page.getByRole("button", { name: "Continue" }).click();
    return opened;
  };

  for (const width of [1440, 390]) {
    test(`a tenant sees its series and rules, ${width} px`, async () => {
      for (const [path, text] of PAGES) {
        const { page, problems, close } = await open(path, width);
        const found = page.getByText(text).filter({ visible: true }).first();
        await found.waitFor().catch(async () => {
          throw new Error(`${path} does not show ${text}: ${await page.locator("body").innerText()}`);
        });
        await settle(page);
        const shown = await page.locator("body").innerText();
        for (const secret of ["secret_b", "only_b", "AlertOf_b", "Help of b", "target_b"]) ok(!shown.includes(secret), `${path} shows ${secret}: ${shown}`);
        strictEqual(await page.getByRole("alert").filter({ visible: true }).count(), 0, `${path} shows an error: ${shown}`);
        deepStrictEqual([...problems, ...(await violations(page))], [], path);
        await close();
      }
    });
  }

  test("a tenant begins with the query page", async () => {
    const { page, problems, close } = await open("", 1440);
    await page.locator(".cm-content").waitFor();
    ok(page.url().endsWith("/query"), page.url());
    deepStrictEqual(problems, []);
    await close();
  });

  test("pages about the whole server say why they are empty, and no link leads to them", async () => {
    for (const path of WHOLE_SERVER) {
      const { page, problems, close } = await open(path, 1440);
      await page.getByText("This page shows the whole server.").waitFor();
      const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
      // The page asks whether the tenant has training jobs.
      await links.filter({ hasText: "Jobs" }).waitFor();
      deepStrictEqual(await links.allInnerTexts(), ["Query", "Metrics", "Alerts", "Rules", "Targets", "Jobs"]);
      strictEqual(await page.getByRole("alert").filter({ visible: true }).count(), 0, path);
      deepStrictEqual(problems, [], path);
      await close();
    }
  });
});
