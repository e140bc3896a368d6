// Names, values, help texts and queries that would run as scripts if the page took them for HTML.

import { deepStrictEqual, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, waitUntil } from "./harness.mjs";

const IMAGE = "<img src=x onerror=alert(1)>";
const SCRIPT = "</textarea></script><script>alert(2)</script>";
const LINK = "javascript:alert(3)";
const quoted = (text) => JSON.stringify(text);

/** OpenMetrics with hostile names, labels, bounds and help. */
const EXPOSITION = [
  `# HELP ${quoted(IMAGE)} ${SCRIPT} ${IMAGE}`,
  `# TYPE ${quoted(IMAGE)} gauge`,
  `{${quoted(IMAGE)},job=${quoted(SCRIPT)},${quoted(LINK)}=${quoted(IMAGE)}} 1`,
  `{${quoted(IMAGE)},job=${quoted(LINK)},${quoted(LINK)}=${quoted(SCRIPT)}} 2`,
  "# TYPE h histogram",
  `h_bucket{le="1",job=${quoted(IMAGE)}} 1`,
  `h_bucket{le="+Inf",job=${quoted(IMAGE)}} 2`,
  `h_count{job=${quoted(IMAGE)}} 2`,
  `h_sum{job=${quoted(IMAGE)}} 3`,
  "# TYPE training:job:gpus gauge",
  `training:job:gpus{job_id=${quoted(IMAGE)},team=${quoted(SCRIPT)},state="allocated"} 1`,
  "# TYPE training:gpu:info gauge",
  `training:gpu:info{job_id=${quoted(IMAGE)},node=${quoted(SCRIPT)},gpu=${quoted(IMAGE)}} 1`,
  "# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
  `DCGM_FI_DEV_POWER_USAGE{Hostname=${quoted(SCRIPT)},gpu=${quoted(IMAGE)}} 1`,
  "# TYPE training:node:lemon_score:30d gauge",
  `training:node:lemon_score:30d{node=${quoted(IMAGE)}} 1`,
  "# EOF",
  "",
].join("\n");
/** The text format accepts any value of `le`. */
const BOUNDS = `evil_bucket{le="${IMAGE}"} 1\nevil_bucket{le="constructor"} 2\nevil_bucket{le="__proto__",__proto__="${LINK}"} 3\n`;

describe("hostile data", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer({ flags: ["--config.file", "DIR/varve.yaml"], files: { "varve.yaml": "ingest:\n  team_label: job\n" } });
    const store = async (body, type) => {
      const response = await server.post("/api/v1/import/prometheus", body, type);
      strictEqual(response.status, 204, await response.text());
    };
    await store(EXPOSITION, "application/openmetrics-text");
    await store(BOUNDS, "text/plain");
    // A rejected sample, so that its labels are shown, too.
    await server.post("/api/v1/import/prometheus", `m{a=${quoted(IMAGE)},a=${quoted(SCRIPT)}} 1\n`, "text/plain");
    await waitUntil("the samples are visible", async () => (await (await fetch(`${server.url}/api/v1/query?query=count(h_count)`)).json()).data.result.length === 1);
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const query = (expr, more = "") => `query?g0.expr=${encodeURIComponent(expr)}${more}`;
  const paths = [
    query(`{${quoted(IMAGE)}}`),
    query(`{${quoted(IMAGE)}}`, "&g0.tab=graph"),
    query(`{${quoted(IMAGE)}}`, "&g0.tab=explain"),
    query("evil_bucket", "&g0.tab=graph&g0.display_mode=heatmap"),
    query("evil_bucket", "&g0.tab=graph"),
    query(SCRIPT),
    query(`label_replace(up, "x", ${quoted(IMAGE)}, "", "")`),
    `query?g0.expr=up&g0.tab=${encodeURIComponent(SCRIPT)}&g0.range_input=${encodeURIComponent(IMAGE)}&__proto__=1&g0.res_density=constructor`,
    "explore",
    `explore?metric=${encodeURIComponent(IMAGE)}&label=${encodeURIComponent(LINK)}`,
    `explore?metric=${encodeURIComponent(SCRIPT)}`,
    "cardinality",
    `cardinality?match=${encodeURIComponent('{job!=""}')}&focus=job`,
    `cardinality?match=${encodeURIComponent(SCRIPT)}`,
    "churn",
    "usage",
    "jobs",
    `jobs?job=${encodeURIComponent(IMAGE)}`,
    `jobs?job=${encodeURIComponent(SCRIPT)}&signal=constructor&page=x&range=${encodeURIComponent(LINK)}`,
    "jobs?view=nodes",
    "running",
    "teams",
    "store",
  ];

  test("nothing of it becomes an element, a script or a link", async () => {
    for (const path of paths) {
      const { page, problems, close } = await openPage(browser, `${server.url}/${path}`, { expected: ["400", "422"] });
      await settle(page);
      await page.waitForTimeout(300);
      deepStrictEqual(problems, [], path);
      strictEqual(await page.locator("#root img, #root script, #root a[href^='javascript:']").count(), 0, path);
      await close();
    }
  });

  test("hostile names are shown as they are", async () => {
    const { page, close } = await openPage(browser, `${server.url}/explore`);
    await page.getByText(IMAGE, { exact: false }).first().waitFor();
    await page.getByRole("link", { name: IMAGE }).first().click();
    await page.getByRole("heading", { name: IMAGE }).waitFor();
    await page.getByText(SCRIPT, { exact: false }).first().waitFor();
    await close();
  });
});
