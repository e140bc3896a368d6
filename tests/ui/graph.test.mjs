// The graph of the query page: height, time range, values at the pointer, limits, samples, several queries, estimates.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, writeFleet } from "./harness.mjs";

/** Samples of each series below, 15 s apart. */
const N_SAMPLES = 40;
const VALUES = { a: 1, b: 1.1, c: 123_456_789.123, d: 1_000_000 };

const graph = (expr, more = "") => `/query?g0.expr=${encodeURIComponent(expr)}&g0.tab=graph&g0.range_input=10m${more}`;

describe("graph", { skip: missing() }, () => {
  let server;
  let browser;
  /** The time of the last sample. */
  let end;
  before(async () => {
    server = await startServer();
    writeFleet(server, { series: 5000 });
    browser = await startBrowser();
    end = Math.floor(Date.now() / 15_000) * 15_000;
    const lines = Object.entries(VALUES).flatMap(([i, value]) => Array.from({ length: N_SAMPLES }, (_, n) => `graphed{i="${i}"} ${value} ${end - (N_SAMPLES - 1 - n) * 15_000}`));
    lines.push(`twin{i="a"} 1 ${end}`);
    // Many more series than a graph shows, under names that are a small part of all.
    for (let i = 0; i < 2500; i++) lines.push(`wide_${i % 5}{i="${i}"} 1 ${end}`);
    const stored = await server.post("/api/v1/import/prometheus", `${lines.join("\n")}\n`, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  const at = () => `&g0.end_input=${encodeURIComponent(new Date(end).toISOString())}`;
  const open = (path, options) => openPage(browser, server.url + path, options);
  const plotOf = async (page) => {
    await page.locator(".plot canvas").waitFor();
    await settle(page);
    return page.locator(".plot .u-over").boundingBox();
  };
  /** Moves the pointer to a value in the middle of a graph of `graphed`, whose axis has these limits. */
  const pointAt = async (page, plot, value, low, high) => {
    await page.mouse.move(plot.x + plot.width * 0.5, plot.y + plot.height * (1 - (value - low) / (high - low)));
  };

  test("a graph is 420 px high, and keeps the height that the user gives it", async () => {
    const { page, problems, close } = await open(graph("graphed") + at());
    await plotOf(page);
    const height = async () => (await page.locator(".plot").boundingBox()).height;
    ok((await height()) >= 420, `${await height()} px`);
    const handle = page.getByRole("separator", { name: "Height of graphs" });
    const box = await handle.boundingBox();
    await page.mouse.move(box.x + 50, box.y + 4);
    await page.mouse.down();
    await page.mouse.move(box.x + 50, box.y + 124, { steps: 3 });
    await page.mouse.up();
    strictEqual(await height(), 540);
    strictEqual((await page.locator(".uplot").boundingBox()).height, 540);
    await handle.focus();
    await page.keyboard.press("ArrowUp");
    strictEqual(await height(), 520);
    await page.reload();
    await plotOf(page);
    strictEqual(await height(), 520);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("quick ranges and two times choose the range", async () => {
    for (const width of [1440, 390]) {
      const { page, problems, close } = await open(graph("graphed"), { width });
      await plotOf(page);
      await page.evaluate(() => localStorage.setItem("varve.utc", "true"));
      await page.reload();
      const opener = page.getByRole("button", { name: "Choose a time range" });
      await opener.click();
      await page.getByRole("button", { name: "Last 3h" }).click();
      await page.waitForURL(/g0\.range_input=3h/);
      await opener.click();
      const dialog = page.getByRole("dialog", { name: "Time range" });
      await dialog.getByLabel("From", { exact: true }).waitFor();
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
      deepStrictEqual(await violations(page), []);
      match(await dialog.getByLabel("From", { exact: true }).inputValue(), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
      await dialog.getByLabel("From", { exact: true }).fill("2026-11-23T10:00:00Z");
      await dialog.getByLabel("To", { exact: true }).fill("2026-11-23T09:00:00Z");
      await page.keyboard.press("Enter");
      await dialog.getByText("From must be before To.").waitFor();
      await dialog.getByLabel("To", { exact: true }).fill("2026-11-23T14:30:00+02:00");
      await dialog.getByRole("button", { name: "Apply" }).click();
      await dialog.waitFor({ state: "detached" });
      const { searchParams } = new URL(page.url());
      deepStrictEqual([searchParams.get("g0.range_input"), searchParams.get("g0.end_input")], ["2h30m", "2026-11-23 12:30:00"]);
      strictEqual(await page.getByRole("textbox", { name: "Evaluation end" }).inputValue(), "2026-11-23T12:30:00Z");
      await opener.click();
      await dialog.getByLabel("To", { exact: true }).waitFor();
      await page.keyboard.press("Escape");
      await dialog.waitFor({ state: "detached" });
      deepStrictEqual(problems, []);
      await close();
    }
  });

  test("the pointer shows all series near it, a click keeps them, and values have six digits", async () => {
    const { page, problems, close } = await open(graph('graphed{i=~"a|b"}', "&g0.y_min=0&g0.y_max=10") + at());
    const plot = await plotOf(page);
    const tip = page.locator(".tip");
    await pointAt(page, plot, 1.05, 0, 10);
    deepStrictEqual(await tip.locator(".tip-row > span:last-child").allInnerTexts(), ["1.1", "1"]);
    await page.mouse.click(plot.x + plot.width * 0.5, plot.y + plot.height * 0.895);
    const pinned = page.getByRole("dialog", { name: "Values at a time" });
    await pinned.waitFor();
    const kept = await pinned.innerText();
    await page.mouse.move(plot.x + plot.width * 0.2, plot.y + plot.height * 0.2);
    strictEqual(await pinned.innerText(), kept);
    deepStrictEqual(await violations(page), []);
    await page.keyboard.press("Escape");
    await pinned.waitFor({ state: "detached" });

    await page.goto(server.url + graph('graphed{i="c"}', "&g0.y_min=123M&g0.y_max=124M") + at());
    const second = await plotOf(page);
    await pointAt(page, second, VALUES.c, 123e6, 124e6);
    deepStrictEqual(await tip.locator(".tip-row > span:last-child").allInnerTexts(), ["123.457M"]);
    deepStrictEqual(problems, []);
    await close();
  });

  test("the values at the pointer stay on a narrow screen", async () => {
    const { page, problems, close } = await open(graph("node_load1"), { width: 390 });
    const plot = await plotOf(page);
    for (const x of [0.02, 0.3, 0.5, 0.7, 0.98]) {
      for (let y = 0.05; y < 1 && (await page.locator(".tip").count()) === 0; y += 0.05) await page.mouse.move(plot.x + plot.width * x, plot.y + plot.height * y);
      const tip = await page.locator(".tip").boundingBox();
      ok(tip.x >= 0 && tip.x + tip.width <= 390, `from ${tip.x}, ${tip.width} px wide`);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
      await page.mouse.move(plot.x + plot.width * 0.5, plot.y - 80);
    }
    deepStrictEqual(problems, []);
    await close();
  });

  test("of many series near the pointer, ten are shown", async () => {
    const { page, close } = await open(graph(`wide_0 @ ${end / 1000}`) + at());
    const plot = await plotOf(page);
    await page.mouse.move(plot.x + plot.width * 0.5, plot.y + plot.height * 0.5);
    strictEqual(await page.locator(".tip-row").count(), 10);
    const n = Number(/(\d+) more near the pointer/.exec(await page.locator(".tip").innerText())[1]);
    strictEqual(n + 10, 500);
    await close();
  });

  test("a row of the legend and its line highlight each other", async () => {
    const { page, problems, close } = await open(graph('graphed{i=~"a|d"}', "&g0.display_mode=log") + at());
    const plot = await plotOf(page);
    const overlay = () => page.evaluate(() => document.querySelector(".chart-overlay").toDataURL());
    await page.mouse.move(plot.x - 20, plot.y - 60);
    const plain = await overlay();
    const rows = page.locator(".legend tbody tr");
    await rows.nth(1).hover();
    const second = await overlay();
    ok(second !== plain, "the row highlights its line");
    await rows.nth(0).hover();
    ok((await overlay()) !== second, "another row highlights another line");
    await page.locator("h1, .brand").first().hover();
    // The line of 1,000,000 is the upper one.
    for (let y = 0.02; y < 0.5 && (await page.locator(".legend tr.near").count()) === 0; y += 0.03) await page.mouse.move(plot.x + plot.width * 0.5, plot.y + plot.height * y);
    match(await page.locator(".legend tr.near").innerText(), /i="d"/);
    deepStrictEqual(problems, []);
    await close();
  });

  test("the limits of the axis are in the address, and those that exclude each other are rejected", async () => {
    const { page, problems, close } = await open(graph("graphed") + at());
    await plotOf(page);
    await page.getByRole("textbox", { name: "Y max" }).fill("1.5k");
    await page.keyboard.press("Enter");
    await page.waitForURL(/g0\.y_max=1500/);
    const [plot, tip] = [await plotOf(page), page.locator(".tip")];
    // The upper lines are outside.
    await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 3);
    strictEqual(await tip.count(), 0);
    const yMin = page.getByRole("textbox", { name: "Y min" });
    await yMin.fill("2k");
    strictEqual(await yMin.getAttribute("aria-invalid"), "true");
    await page.keyboard.press("Enter");
    strictEqual(await yMin.inputValue(), "");
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("a range selector and the display of samples show the stored samples", async () => {
    for (const path of [graph("graphed[1m]"), graph('(graphed{i=~".+"})', "&g0.display_mode=points")]) {
      const { page, problems, close } = await open(path + at(), { expected: ["400"] });
      await plotOf(page);
      // (end - 10m, end] has all samples.
      const { data } = await (await fetch(`${server.url}/api/v1/query?query=${encodeURIComponent("sum(count_over_time(graphed[10m]))")}&time=${end / 1000}`)).json();
      strictEqual(data.result[0].value[1], String(4 * N_SAMPLES));
      await page.getByText("160 stored samples").waitFor();
      deepStrictEqual([...problems, ...(await violations(page))], []);
      await close();
    }
    // Two metrics whose series have the same labels.
    const both = await open(graph('{__name__=~"graphed|twin"}', "&g0.display_mode=points") + at());
    await both.page.getByText("161 stored samples").waitFor();
    await both.close();
    const { page, close } = await open(graph("rate(graphed[1m])", "&g0.display_mode=points"), { expected: ["400"] });
    await page.getByRole("alert").getByText("Raw samples need a selector").waitFor();
    await close();
  });

  test("samples and expressions of a graph are bounded", async () => {
    const { page, close } = await open("/query");
    let most = 0;
    const limits = [];
    await page.route("**/api/v1/query", (route) => {
      const form = new URLSearchParams(route.request().postData());
      if (!form.get("query").startsWith("max(count_over_time(")) {
        limits.push(form.get("limit"));
        return route.continue();
      }
      const result = [{ metric: {}, value: [0, String(most)] }];
      return route.fulfill({ contentType: "application/json", body: JSON.stringify({ status: "success", data: { resultType: "vector", result } }) });
    });
    const points = graph("graphed", "&g0.display_mode=points") + at();
    most = 100_001;
    await page.goto(server.url + points);
    await page.getByRole("alert").getByText("A series has 100k samples in 10m; the page draws at most 100k. Choose a shorter range.").waitFor();
    most = 40_000;
    await page.goto(server.url + points);
    await page.getByText("The page shows only 2 series of the result.").waitFor();
    deepStrictEqual(limits, ["2"]);

    await page.goto(`${server.url}/query?g0.expr=1${Array.from({ length: 20 }, (_, i) => `&g0.expr${i + 2}=${i}`).join("")}`);
    await page.getByLabel("Cost of query J").waitFor();
    strictEqual(await page.locator(".editor").count(), 10);
    strictEqual(await page.getByRole("button", { name: "Add query" }).isDisabled(), true);
    await close();
  });

  test("several queries share a graph, and the address keeps them", async () => {
    const { page, problems, close } = await open(graph('graphed{i="a"}') + at());
    await plotOf(page);
    await page.getByRole("button", { name: "Add query" }).click();
    await page.locator(".editor .cm-content").nth(1).click();
    await page.keyboard.insertText('graphed{i="b"} * 2');
    await page.keyboard.press("Enter");
    await page.waitForURL(/g0\.expr2=/);
    await settle(page);
    deepStrictEqual(await page.locator(".legend tbody code").allInnerTexts(), ['A graphed{i="a"}', 'B {i="b"}']);
    await page.reload();
    await plotOf(page);
    deepStrictEqual(await page.locator(".legend tbody td:nth-child(2)").allInnerTexts(), ["1", "2.2"]);
    deepStrictEqual(await violations(page), []);
    await page.getByRole("button", { name: "Table", exact: true }).click();
    await page.getByRole("heading", { name: 'B graphed{i="b"} * 2' }).waitFor();
    strictEqual(await page.getByLabel("Cost of query B").count(), 1);
    await page.getByRole("button", { name: "Remove expression A" }).click();
    await page.waitForURL((url) => url.searchParams.get("g0.expr") === 'graphed{i="b"} * 2' && !url.searchParams.has("g0.expr2"));
    deepStrictEqual(problems, []);
    await close();
  });

  test("the error of one query leaves the graph of the other", async () => {
    const { page, close } = await open(`${graph("graphed")}${at()}&g0.expr2=${encodeURIComponent("sum(up")}`, { expected: ["400"] });
    await plotOf(page);
    await page.getByRole("alert").getByText(/^B: .*unclosed left parenthesis/).waitFor();
    strictEqual(await page.locator(".legend tbody tr").count(), 4);
    await close();
  });

  test("a warning counts the series that a query selects", async () => {
    const selectors = ['{__name__=~"wide_."}', '{__name__=~"wide_.",i!=""}', '{i=~".+",__name__!~"graphed|up"}'];
    for (const selector of selectors) {
      const counted = await (await fetch(`${server.url}/api/v1/series?match[]=${encodeURIComponent(selector)}&limit=100000`)).json();
      const all = await (await fetch(`${server.url}/api/v1/status/tsdb`)).json();
      ok(counted.data.length > 2000 && counted.data.length < all.data.headStats.numSeries, `${counted.data.length} of ${all.data.headStats.numSeries}`);
      const { page, close } = await open(graph(selector));
      await page.getByText(`selects ${counted.data.length.toLocaleString("en")} series; the graph shows 2,000 of them`).waitFor();
      await close();
    }
    // Few series of a store with many get no warning.
    const { page, close } = await open(graph('{__name__=~"wide_[0-2]"}'));
    await plotOf(page);
    await page.waitForTimeout(1000);
    strictEqual(await page.getByText("series; the graph shows").count(), 0);
    await close();
  });

  test("the pointer that copies a panel is not over Remove afterwards", async () => {
    for (const width of [1440, 1000, 390]) {
      const { page, problems, close } = await open("/query?g0.expr=vector(1)", { width });
      await page.getByRole("cell", { name: "1", exact: true }).waitFor();
      await settle(page);
      const button = page.getByRole("button", { name: "Copy panel" });
      const box = await button.boundingBox();
      const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
      await page.mouse.click(x, y);
      await page.locator(".panel").nth(1).waitFor();
      await settle(page);
      strictEqual(await page.evaluate(([left, top]) => document.elementFromPoint(left, top).textContent, [x, y - (await page.evaluate(() => scrollY))]), "Copy panel");
      deepStrictEqual(problems, []);
      await close();
    }
  });
});
