// Every page with fleet data, in both themes and two widths: no errors, nothing wider than the screen, accessible.

import { deepStrictEqual, ok } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, writeFleet } from "./harness.mjs";

/** Each page with a text that it shows once its data are there. */
export const PAGES = [
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
  ["rules", "Rules and alerts"],
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

  for (const theme of ["light", "dark"]) {
    for (const width of [1440, 390]) {
      test(`${theme}, ${width} px`, async () => {
        for (const [path, text] of PAGES) {
          const { page, problems, close } = await openPage(browser, `${server.url}/${path}`, { theme, width });
          await page.getByText(text, { exact: false }).first().waitFor();
          await settle(page);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          ok(overflow <= 0, `${path} is ${overflow} px wider than the screen`);
          deepStrictEqual([...problems, ...(await violations(page))], [], path);
          await close();
        }
      });
    }
  }
});
