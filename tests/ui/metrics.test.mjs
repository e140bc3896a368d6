// The metrics page: type and unit from metadata or from the name, and small graphs for each value of a label.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations } from "./harness.mjs";

describe("metrics page", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    // Without its own metrics, which change meanwhile.
    server = await startServer({ flags: ["--self-scrape-interval=0s"] });
    browser = await startBrowser();
    const now = Date.now();
    const lines = [];
    for (let n = 10; n >= 0; n--) {
      const time = now - n * 60_000;
      for (let i = 0; i < 30; i++) lines.push(`job_memory_bytes{job="job-${String(i % 15).padStart(2, "0")}",instance="i${i}"} ${(i + 1) * 1024} ${time}`);
      for (const job of ["a", "b"]) lines.push(`io_bytes_total{job="${job}"} ${(10 - n) * 600} ${time}`);
    }
    const stored = await server.post("/api/v1/import/prometheus", `# TYPE job_memory_bytes gauge\n${lines.join("\n")}\n`, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  const open = (path, options) => openPage(browser, `${server.url}/${path}`, options);

  test("type and unit come from the metadata, or from the name", async () => {
    const { page, problems, close } = await open("explore");
    const cells = async (name) => page.getByRole("row", { name }).locator("td").allInnerTexts();
    await page.getByRole("row", { name: "io_bytes_total" }).waitFor();
    deepStrictEqual((await cells("io_bytes_total")).slice(0, 3), ["io_bytes_total", "counter", "bytes"]);
    deepStrictEqual((await cells("job_memory_bytes")).slice(0, 3), ["job_memory_bytes", "gauge", "bytes"]);
    await page.getByRole("link", { name: "io_bytes_total" }).click();
    await page.getByText("counter from the name").waitFor();
    // The query suits the type of the name.
    await page.getByRole("link", { name: "sum(rate(io_bytes_total[5m]))" }).waitFor();
    await settle(page);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("the numbers of the list and of a metric are those of the API", async () => {
    const ask = async (path) => (await (await fetch(`${server.url}/api/v1/${path}`)).json()).data;
    const value = async (query) => Number((await ask(`query?query=${encodeURIComponent(query)}`)).result[0]?.value[1] ?? 0);
    const names = await ask("label/__name__/values");
    const { headStats } = await ask("status/tsdb");
    const { page, close } = await open("explore");
    const figure = async (name) => page.locator(".figures > div").filter({ hasText: name }).first().locator("dd").innerText();
    await page.getByRole("row", { name: "job_memory_bytes" }).waitFor();
    deepStrictEqual([await figure("Metrics"), await figure("Series in memory")], [String(names.length), String(headStats.numSeries)]);
    for (const name of names) {
      strictEqual(await page.getByRole("row", { name }).locator("td").nth(3).innerText(), String(await value(`count(${name})`)), name);
    }
    await page.goto(`${server.url}/explore?metric=job_memory_bytes`);
    await page.getByText("samples per second in the last five minutes").waitFor();
    await settle(page);
    strictEqual(await figure("Series"), String(await value("count(job_memory_bytes)")));
    const rate = Number(/([\d.]+) samples per second/.exec(await page.getByText("samples per second").innerText())[1]);
    const expected = (await value("sum(count_over_time(job_memory_bytes[5m]))")) / 300;
    // A minute may have begun meanwhile.
    ok(Math.abs(rate - expected) <= 30 / 300 + 0.001 && rate > 0, `${rate}, ${expected}`);
    for (const label of ["job", "instance"]) {
      const cells = page.getByRole("region", { name: "Labels" }).getByRole("row", { name: label }).locator("td");
      deepStrictEqual((await cells.allInnerTexts()).slice(0, 3), [label, String(await value(`count(count by (${label}) (job_memory_bytes))`)), "30"]);
    }
    await close();
  });

  test("small graphs for each value of a label load when they are seen, a few at a time", async () => {
    for (const [theme, width] of [["light", 1440], ["dark", 390]]) {
      const { page, problems, close } = await openPage(browser, "about:blank", { theme, width, height: 700 });
      let [running, most, all] = [0, 0, 0];
      await page.route("**/api/v1/query_range", async (route) => {
        running += 1;
        all += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, 50));
        await route.continue();
        running -= 1;
      });
      problems.length = 0;
      await page.goto(`${server.url}/explore?metric=job_memory_bytes`);
      await page.locator(".small-graph").first().waitFor();
      strictEqual(await page.getByLabel("One graph for each").inputValue(), "job");
      strictEqual(await page.locator(".small-graph").count(), 12);
      await settle(page);
      ok(all < 12, `${all} graphs loaded, although not all of them are seen`);
      await page.getByRole("button", { name: "Show more (3 graphs left)" }).click();
      for (const graph of await page.locator(".small-graph").all()) {
        await graph.scrollIntoViewIfNeeded();
        await page.waitForTimeout(50);
      }
      await settle(page);
      strictEqual(await page.locator(".small-graph canvas").count(), 30);
      ok(most <= 4, `${most} at the same time`);
      strictEqual(all, 15);
      // Each job has two series: minimum, average and maximum.
      deepStrictEqual(await page.locator(".small-graph").first().locator(".legend-entry").allInnerTexts(), ["avg", "max", "min"]);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
      deepStrictEqual([...problems.filter((text) => !text.includes("about:blank") && !text.startsWith("request to")), ...(await violations(page))], []);
      await page.getByLabel("One graph for each").selectOption("instance");
      await page.waitForURL(/by=instance/);
      await page.getByRole("link", { name: "i0", exact: true }).click();
      await page.waitForURL((url) => url.searchParams.get("g0.expr") === 'job_memory_bytes{instance="i0"}');
      await close();
    }
  });
});
