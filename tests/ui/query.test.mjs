// The query page: a query typed with completion, run, zoomed, shown as a table, shared by its address, and canceled.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { exponentialHistogram } from "./otlp.mjs";
import { answerRanges, missing, openPage, settle, startBrowser, startServer, waitUntil, writeFleet } from "./harness.mjs";

const query = (expr, more = "") => `/query?g0.expr=${encodeURIComponent(expr)}${more}`;

describe("query page", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer();
    writeFleet(server);
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  const open = (path, options) => openPage(browser, server.url + path, options);

  test("a query is typed with completion, run, zoomed, shown as a table, and reopened by its address", async () => {
    const { page, problems, close } = await open("/query");
    await page.locator(".editor .cm-content").click();
    await page.keyboard.type("node_cpu_sec");
    await page.getByRole("option", { name: /node_cpu_seconds_total/ }).waitFor();
    // CodeMirror ignores Enter for 75 ms after it has opened the list.
    await page.waitForTimeout(150);
    await page.keyboard.press("Enter");
    await page.locator(".editor .cm-content", { hasText: "node_cpu_seconds_total" }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByText("1,152 series").or(page.getByText(/\d+ series/)).first().waitFor();
    match(page.url(), /g0\.expr=node_cpu_seconds_total/);

    await page.goto(server.url + query("sum by (mode) (rate(node_cpu_seconds_total[5m]))", "&g0.tab=graph&g0.range_input=20m"));
    await page.locator(".plot canvas").waitFor();
    await settle(page);
    const plot = await page.locator(".plot .u-over").boundingBox();
    await page.mouse.move(plot.x + plot.width * 0.3, plot.y + 50);
    await page.mouse.down();
    await page.mouse.move(plot.x + plot.width * 0.6, plot.y + 80, { steps: 5 });
    await page.mouse.up();
    await page.waitForURL(/g0\.end_input=/);
    const zoomed = new URL(page.url()).searchParams.get("g0.range_input");
    match(zoomed, /^[56]m/);
    await page.goBack();
    await page.waitForURL((url) => url.searchParams.get("g0.range_input") === "20m");

    await page.getByRole("button", { name: "Table", exact: true }).click();
    await page.getByRole("cell", { name: "softirq", exact: true }).waitFor();
    const shared = page.url();
    const again = await open(shared.slice(server.url.length));
    await again.page.getByRole("cell", { name: "softirq", exact: true }).waitFor();
    deepStrictEqual([...problems, ...again.problems], []);
    await again.close();
    await close();
  });

  test("the cost of a result is shown", async () => {
    const { page, close } = await open(query("sum(node_cpu_seconds_total)"));
    const cost = page.getByLabel("Cost of the query");
    await cost.waitFor();
    const text = await cost.innerText();
    for (const name of ["Evaluation", "Queue", "Series", "Samples", "Peak samples", "Peak memory", "Size"]) ok(text.includes(name), `${name} in ${text}`);
    await close();
  });

  test("an error is shown where it is in the text", async () => {
    const { page, close } = await open(query("sum(up"), { expected: ["400"] });
    await page.getByRole("alert").getByText("unclosed left parenthesis").waitFor();
    await page.locator(".cm-lintRange-error").first().waitFor();
    await close();
  });

  test("an empty panel keeps nothing of the query before it", async () => {
    const { page, close } = await open("/query", { expected: ["400"] });
    const run = async (expr) => {
      await page.locator(".editor .cm-content").click();
      await page.keyboard.insertText(expr);
      await page.getByRole("button", { name: "Run" }).click();
    };
    await page.getByText("Enter an expression").waitFor();
    await run("vector(42) +");
    await page.getByRole("alert").getByText("unexpected end of input").waitFor();
    await page.goBack();
    await page.getByText("Enter an expression").waitFor();
    await page.getByRole("alert").waitFor({ state: "detached" });

    await run("vector(42)");
    await page.getByRole("button", { name: "CSV", disabled: false }).waitFor();
    await page.goBack();
    await page.getByText("Enter an expression").waitFor();
    await page.getByRole("button", { name: "CSV", disabled: true }).waitFor();
    await close();
  });

  test("a warning precedes a query that will hit a limit", async () => {
    const { page, close } = await open(query("node_cpu_seconds_total", "&g0.tab=graph&g0.range_input=1d&g0.res_step=1s"), { expected: ["400"] });
    await page.getByText(/The graph has 86\.4k points per series/).waitFor();
    await close();
  });

  test("a query is canceled on the server", async () => {
    const { page, close } = await open(query(""));
    // Hours of steps over all series: it does not end by itself within this test.
    const heavy = 'sum(count_over_time({__name__!=""}[30m:1s]))';
    await page.locator(".editor .cm-content").click();
    await page.keyboard.insertText(heavy);
    await page.getByRole("button", { name: "Run" }).click();
    const active = async () => (await (await fetch(`${server.url}/api/v1/status/queries`)).json()).data.filter((one) => one.query === heavy).length;
    await waitUntil("the query runs", async () => (await active()) === 1);
    await page.getByRole("button", { name: /^Cancel/ }).click();
    await page.getByText("The query was canceled.").waitFor();
    await waitUntil("the server stops it", async () => (await active()) === 0);
    await close();
  });

  test("the legend shows one series, and the history offers the query", async () => {
    const { page, problems, close } = await open(query("sum by (mode) (node_cpu_seconds_total)", "&g0.tab=graph&g0.range_input=20m"));
    const idle = page.getByRole("button", { name: '{mode="idle"}' });
    await idle.click();
    strictEqual(await page.locator(".legend tr.off").count(), 7);
    await page.getByRole("button", { name: "Show all" }).click();
    strictEqual(await page.locator(".legend tr.off").count(), 0);
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("button", { name: "History" }).click();
    await page.getByRole("dialog").getByText("sum by (mode) (node_cpu_seconds_total)").waitFor();
    await page.keyboard.press("Escape");
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
    strictEqual(file.suggestedFilename(), "varve.csv");
    await page.getByRole("button", { name: "Format" }).click();
    await page.getByRole("button", { name: "Add panel" }).click();
    strictEqual(await page.locator(".panel").count(), 2);
    deepStrictEqual(problems, []);
    await close();
  });

  test("all panels take the range of one, and an axis is logarithmic", async () => {
    const first = "g0.expr=node_load1&g0.tab=graph&g0.range_input=20m&g0.display_mode=log";
    const { page, problems, close } = await open(`/query?${first}&g1.expr=vector(-1)&g1.tab=graph&g1.display_mode=log`);
    await page.locator(".plot canvas").nth(1).waitFor();
    await settle(page);
    strictEqual(await page.getByLabel("Display").first().inputValue(), "log");
    await page.getByRole("button", { name: "Range to all" }).first().click();
    await page.waitForURL(/g1\.range_input=20m/);
    await page.getByLabel("Display").first().selectOption("lines");
    await page.waitForURL((url) => !url.searchParams.has("g0.display_mode"));
    await page.locator(".plot canvas").nth(1).waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("a graph of many series is built once, and has all lines again when it is repeated", async () => {
    const { page, problems, close } = await open("/query");
    await answerRanges(page, 1000, 500);
    await page.evaluate(() => {
      globalThis.nPlots = 0;
      const isPlot = (node) => node.classList?.contains("uplot");
      new MutationObserver((changes) => (globalThis.nPlots += changes.flatMap(({ addedNodes }) => [...addedNodes]).filter(isPlot).length))
        .observe(document.getElementById("root"), { subtree: true, childList: true });
    });
    const image = () => page.evaluate(() => document.querySelector(".plot canvas").toDataURL());
    const hasBuilt = (n) => page.waitForFunction((n) => globalThis.nPlots === n, n);
    await page.evaluate(() => history.pushState(null, "", "query?g0.expr=m&g0.tab=graph&g0.range_input=499s&g0.end_input=2026-01-01&g0.res_step=1s"));
    await page.evaluate(() => dispatchEvent(new PopStateEvent("popstate")));
    await hasBuilt(1);
    let first;
    await waitUntil("all lines are drawn", async () => {
      const before = first;
      await page.waitForTimeout(1000);
      first = await image();
      return first === before;
    });
    await hasBuilt(1);
    await page.getByRole("button", { name: "Run" }).click();
    await hasBuilt(2);
    // Before, the effect that ends the old drawing ended the new one, and most lines were missing.
    await waitUntil("the new graph has all lines", async () => (await image()) === first);
    await settle(page);
    await hasBuilt(2);
    deepStrictEqual(problems, []);
    await close();
  });

  test("exemplars lie on the graph and show their labels", async () => {
    const now = Math.floor(Date.now() / 1000);
    const lines = ["# TYPE requests counter"];
    for (let i = 10; i >= 0; i--) lines.push(`requests_total{path="/"} ${1000 - i * 10} ${now - i * 60}${i === 5 ? ` # {trace_id="4bf92f35"} 950 ${now - 300}` : ""}`);
    const stored = await server.post("/api/v1/import/prometheus", `${lines.join("\n")}\n# EOF\n`, "application/openmetrics-text");
    strictEqual(stored.status, 204, await stored.text());
    const { page, problems, close } = await open(query("requests_total", "&g0.tab=graph&g0.range_input=10m&g0.show_exemplars=1"));
    await page.locator(".plot canvas").waitFor();
    await settle(page);
    const plot = await page.locator(".plot .u-over").boundingBox();
    const tip = page.getByText("trace_id: 4bf92f35");
    // The exemplar is in the middle of the graph, less the time since it was written.
    for (const y of [0.5, 0.47, 0.44, 0.53, 0.41]) {
      for (let x = 0.3; x < 0.65 && !(await tip.isVisible()); x += 0.004) await page.mouse.move(plot.x + plot.width * x, plot.y + plot.height * y);
    }
    await tip.waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("native histograms are a heat map, and a table of buckets", async () => {
    const now = Math.floor(Date.now() / 60_000) * 60_000;
    const points = Array.from({ length: 10 }, (_, i) => ({ timeMs: now - (9 - i) * 60_000, counts: [i, 2 * i, 30 * i, i] }));
    const stored = await server.post("/api/v1/otlp/v1/metrics", exponentialHistogram("native", points), "application/x-protobuf");
    strictEqual(stored.status, 200, await stored.text());
    const { page, problems, close } = await open(query("rate(native[5m])", "&g0.tab=graph&g0.range_input=10m"));
    await page.getByRole("button", { name: "Show the heat map" }).click();
    await page.getByText(/0\.5 per bucket/).waitFor();
    await page.getByRole("button", { name: "Table", exact: true }).click();
    await page.getByText(/4 buckets/).click();
    await page.getByRole("rowheader", { name: "(1, 2]" }).waitFor();
    await page.goto(server.url + query("native or vector(0) / 0", "&g0.tab=graph&g0.range_input=20m"));
    await page.getByText("NaN and infinite values are gaps. Only the heat map shows the native histograms of 1 series.").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("a link of Prometheus opens the same graph", async () => {
    const { page, problems, close } = await open("/graph?g0.expr=node_load1&g0.tab=0&g0.stacked=1&g0.range_input=20m");
    await page.locator(".plot canvas").or(page.getByText("The result is empty")).first().waitFor();
    strictEqual(await page.getByLabel("Display").inputValue(), "stacked");
    deepStrictEqual(problems, []);
    await close();
  });

  test("the keyboard reaches pages, the editor and the list of keys", async () => {
    const { page, problems, close } = await open("/store");
    await page.getByRole("heading", { name: "Store" }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.waitForURL(/\/query/);
    await page.locator(".cm-content").waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("Go to the query").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("up");
    strictEqual(await page.locator(".cm-content").innerText(), "up");
    deepStrictEqual(problems, []);
    await close();
  });

  test("Escape closes completions first, Tab takes one, and Ctrl+Enter runs", async () => {
    const { page, problems, close } = await open(query(""));
    const isTyping = () => page.evaluate(() => Boolean(document.activeElement?.shadowRoot?.activeElement));
    const option = page.locator(".cm-tooltip [role=option]").first();
    await page.locator(".editor .cm-content").click();
    await page.keyboard.type("node_memory_MemAvail");
    await option.waitFor();
    await page.keyboard.press("Escape");
    await option.waitFor({ state: "detached" });
    strictEqual(await isTyping(), true);
    await page.keyboard.press("Escape");
    strictEqual(await isTyping(), false);
    await page.keyboard.press("/");
    await page.keyboard.press("End");
    await page.keyboard.type("a");
    await option.waitFor();
    // A completion is taken only after a moment, so that a key for the text does not take it.
    await page.waitForTimeout(200);
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => document.querySelector(".editor")?.shadowRoot?.querySelector(".cm-content")?.textContent === "node_memory_MemAvailable_bytes");
    await page.keyboard.press("Control+Enter");
    await page.waitForURL(/g0\.expr=node_memory_MemAvailable_bytes/);
    deepStrictEqual(problems, []);
    await close();
  });

  test("the navigation leads back to the latest query", async () => {
    const { page, problems, close } = await open(query("vector(42)", "&g0.tab=graph"));
    const link = page.getByRole("link", { name: "Query", exact: true });
    await page.locator(".plot canvas").waitFor();
    await page.getByRole("link", { name: "Rules" }).click();
    await link.click();
    await page.waitForURL(/vector\(42\)&g0\.tab=graph/);
    await page.locator(".plot canvas").waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await page.waitForURL(/\/rules$/);
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.waitForURL(/vector\(42\)&g0\.tab=graph/);
    await link.click();
    await page.waitForURL(/\/query$/);
    deepStrictEqual(problems, []);
    await close();
  });

  test("a completion that loads when the query runs does not cover the result", async () => {
    for (const run of ["click", "Enter", "Control+Enter"]) {
      const { page, problems, close } = await open("/query");
      await page.locator(".cm-content").waitFor();
      let nAnswered = 0;
      await page.route("**/api/v1/label/__name__/values*", async (route) => {
        await page.waitForURL(/g0\.expr=/);
        await route.continue();
        nAnswered += 1;
      });
      await page.locator(".cm-content").click();
      await Promise.all([page.waitForRequest("**/api/v1/label/__name__/values*"), page.keyboard.type("node_load1")]);
      if (run === "click") await page.getByRole("button", { name: "Run" }).click();
      else await page.keyboard.press(run);
      await waitUntil("the completion has loaded", () => nAnswered > 0);
      await page.waitForTimeout(500);
      strictEqual(await page.locator(".cm-tooltip").count(), 0, run);
      deepStrictEqual(problems, []);
      await close();
    }
  });

  test("a query that takes longer than the refresh interval ends", async () => {
    const { page, close } = await open("/query");
    // Each response takes longer than the interval. Before, each refresh canceled the query before it.
    await page.route("**/api/v1/query", async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      await route.continue().catch(() => {});
    });
    await page.goto(server.url + query("vector(42)", "&refresh=1"));
    await page.getByRole("cell", { name: "42", exact: true }).waitFor({ timeout: 10_000 });
    await close();
  });

  test("a result stays beside the error of a failed refresh", async () => {
    const { page, close } = await open(query("vector(42)", "&refresh=1"), { expected: ["ERR_FAILED"] });
    const cell = page.getByRole("cell", { name: "42", exact: true });
    await cell.waitFor();
    await page.route("**/api/v1/query", (route) => route.abort());
    await page.getByRole("alert").getByText("the server cannot be reached").waitFor();
    strictEqual(await cell.isVisible(), true);
    await close();
  });

  test("the table of a range selector counts samples and series", async () => {
    const now = Date.now();
    const lines = ["a", "b"].flatMap((i) => [1, 2, 3].map((n) => `ranged{i="${i}"} ${n} ${now - n * 1000}`));
    const stored = await server.post("/api/v1/import/prometheus", `${lines.join("\n")}\n`, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
    const { page, problems, close } = await open(query("ranged[5m]"));
    await page.getByText("6 samples of 2 series of ranged").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("memory stays flat over 100 queries", async () => {
    const { page, close } = await open(query("sum by (mode) (rate(node_cpu_seconds_total[5m]))", "&g0.tab=graph&g0.range_input=20m"));
    await settle(page);
    const session = await page.context().newCDPSession(page);
    const heap = async () => {
      await session.send("HeapProfiler.collectGarbage");
      return (await session.send("Runtime.getHeapUsage")).usedSize;
    };
    const run = async (n) => {
      for (let i = 0; i < n; i++) {
        await page.getByRole("button", { name: "Run" }).click();
        await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
      }
    };
    await run(20);
    const before = await heap();
    await run(100);
    const grown = (await heap()) - before;
    ok(grown < 2_000_000, `the heap grew by ${grown} bytes in 100 queries`);
    await close();
  });
});
