// The tree of a query: its nodes with series, time and labels, the result of one node, and series without a partner.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations } from "./harness.mjs";

const path = (expr, more = "") => `/query?g0.expr=${encodeURIComponent(expr)}&g0.show_tree=1${more}`;

describe("query tree", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer();
    browser = await startBrowser();
    // Eight series on the left, five on the right; b and c have partners, d has two on the right.
    const lines = ["a", "b", "c", "d"].flatMap((i) => ["x", "y"].map((path) => `requests{i="${i}",path="${path}"} 10`));
    lines.push(...["b", "c", "e", "f"].map((i) => `capacity{i="${i}",zone="1"} 5`), 'other{i="d",zone="1"} 1', 'other{i="d",zone="2"} 1', 'other{i="a",zone="2"} 1');
    // A subquery reads at whole minutes.
    const now = Date.now();
    const samples = lines.flatMap((line) => [now - 120_000, now].map((time) => `${line} ${time}`));
    const stored = await server.post("/api/v1/import/prometheus", `${samples.join("\n")}\n`, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  const open = async (url, options) => {
    const opened = await openPage(browser, server.url + url, options);
    const tree = opened.page.getByRole("group", { name: "Tree of the query" });
    await tree.waitFor();
    await opened.page.waitForFunction(() => document.querySelector(".tree")?.getAttribute("aria-busy") === "false");
    return { ...opened, tree };
  };
  const nodeTexts = async (tree) => (await tree.locator(".tree-node").allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());

  test("each node has its series, its time and its labels, and runs on a click", async () => {
    for (const [theme, width] of [["light", 1440], ["dark", 390]]) {
      const { page, tree, problems, close } = await open(path("sum by (i) (max_over_time((requests)[5m:1m])) / on (i) capacity"), { theme, width });
      const texts = await nodeTexts(tree);
      const time = String.raw`[\d.]+ (µs|ms|s)`;
      for (const [i, pattern] of [
        `Level 1: / on \\(i\\) ?2 series, ${time} i 2 2 of 4 series on the left have no partner on the right 2 of 4 series on the right have no partner on the left`,
        `Level 2: sum by \\(i\\) \\(…\\) ?4 series, ${time} i 4`,
        `Level 3: max_over_time\\(…\\) ?8 series, ${time} i 4 ?path 2`,
        `Level 4: \\(…\\)\\[5m:1m\\] ?8 series, ${time} i 4 ?path 2`,
        `Level 5: requests ?8 series, ${time} i 4 ?path 2`,
        `Level 2: capacity ?4 series, ${time} i 4 ?zone 1`,
      ].entries()) match(texts[i] ?? "", new RegExp(`^${pattern}$`), texts.join("\n"));
      await tree.getByText("on the left have no partner").click();
      deepStrictEqual(await tree.locator(".match li").filter({ visible: true }).allInnerTexts(), ['{i="a"}', '{i="d"}']);
      await tree.getByRole("button", { name: "requests", exact: true }).click();
      await page.getByText("The result of a part of the query: requests").waitFor();
      await page.getByText("8 series of requests").waitFor();
      // The editor and the address keep the query.
      match(new URL(page.url()).searchParams.get("g0.expr"), /^sum by/);
      await page.getByRole("button", { name: "Show the whole query" }).click();
      await page.getByText("8 series of requests").waitFor({ state: "detached" });
      deepStrictEqual(await page.getByRole("region", { name: "Result" }).locator("tbody td:first-child").allInnerTexts(), ["b", "c"]);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
      deepStrictEqual([...problems, ...(await violations(page))], []);
      await close();
    }
  });

  test("the tree says which label sets have several series", async () => {
    const { tree, close } = await open(path("requests{path='x'} * on (i) other"), { expected: ["422", "400"] });
    await tree.getByText('2 series on the right have the same labels {i="d"}; the operator needs one.').waitFor();
    await close();
  });

  test("a node of samples is a graph of points", async () => {
    const { page, tree, close } = await open(path("rate(requests[5m])", "&g0.tab=graph"), { expected: ["400"] });
    await tree.getByRole("button", { name: "requests[5m]" }).click();
    await page.getByText("16 stored samples").waitFor();
    await close();
  });

  test("a tree of many nodes is cut, and few of them run at the same time", async () => {
    const { page, close } = await openPage(browser, "about:blank");
    let [running, most, all] = [0, 0, 0];
    await page.route("**/api/v1/query", async (route) => {
      running += 1;
      all += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, 20));
      await route.continue();
      running -= 1;
    });
    await page.goto(server.url + path(Array.from({ length: 80 }, (_, i) => `vector(${i})`).join(" + ")));
    await page.getByText("The tree shows the first 100 nodes.").waitFor();
    await page.waitForFunction(() => document.querySelector(".tree")?.getAttribute("aria-busy") === "false");
    await settle(page);
    // Four nodes, and the query of the panel. Constants do not run.
    ok(most <= 5 && most > 1, `${most} at the same time`);
    ok(all <= 101, `${all} queries`);
    strictEqual(await page.locator(".tree-node").count(), 100);
    await close();
  });
});
