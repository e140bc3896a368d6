// What helps with results: labels of a result, similar names for an empty one, links, saved panels, the history.

import { deepStrictEqual, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations } from "./harness.mjs";

const query = (expr, more = "") => `/query?g0.expr=${encodeURIComponent(expr)}${more}`;

describe("results", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer();
    browser = await startBrowser();
    const lines = [];
    for (let i = 0; i < 12; i++) lines.push(`http_requests_total{instance="host-${i}",job="${i < 9 ? "frontend" : "backend"}"} ${i}`);
    const stored = await server.post("/api/v1/import/prometheus", `${lines.join("\n")}\n`, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });
  const open = (path, options) => openPage(browser, server.url + path, options);
  const exprOf = (url) => new URL(url).searchParams.get("g0.expr");

  test("the labels of a result are counted", async () => {
    for (const [theme, width] of [["light", 1440], ["dark", 390]]) {
      for (const tab of ["table", "graph"]) {
        const { page, problems, close } = await open(query("http_requests_total", `&g0.tab=${tab}&g0.range_input=5m`), { theme, width });
        await page.getByText("Labels of the result").click();
        const table = page.getByRole("region", { name: "Labels of the result" });
        await table.waitFor();
        const rows = await table.locator("tbody tr").all();
        const read = async (row) => [...(await row.locator("td").allInnerTexts()).slice(0, 2), await row.locator(".frequent").allInnerTexts()];
        deepStrictEqual(await read(rows[1]), ["job", "2", ["frontend 9 series", "backend 3 series"]]);
        const [label, values, frequent] = await read(rows[0]);
        deepStrictEqual([label, values, frequent.length], ["instance", "12", 5]);
        await rows[0].getByText("and 7 more").waitFor();
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
        deepStrictEqual([...problems, ...(await violations(page))], []);
        await close();
      }
    }
  });

  test("an empty result offers names that exist", async () => {
    const cases = [
      ["sum(rate(http_request_total[5m])) # rate", "There is no metric http_request_total in the last 12 hours. Did you mean", "http_requests_total", "sum(rate(http_requests_total[5m])) # rate"],
      ['http_requests_total{job="fronted"}', 'No series of the last 12 hours has job="fronted". Did you mean', "frontend", 'http_requests_total{job="frontend"}'],
      ['http_requests_total{instnce="host-1"}', "No series of the last 12 hours has the label instnce. Did you mean", "instance", 'http_requests_total{instance="host-1"}'],
      ['http_requests_total{job="zzz"}', 'No series of the last 12 hours has job="zzz". It has, for example,', "backend", 'http_requests_total{job="backend"}'],
    ];
    for (const [expr, text, option, replaced] of cases) {
      for (const tab of ["table", "graph"]) {
        const { page, problems, close } = await open(query(expr, `&g0.tab=${tab}`));
        await page.getByText(text).waitFor();
        deepStrictEqual(await violations(page), []);
        await page.getByRole("button", { name: option, exact: true }).click();
        await page.waitForURL((url) => exprOf(url) === replaced);
        await page.getByText(text).waitFor({ state: "detached" });
        deepStrictEqual(problems, []);
        await close();
      }
    }
  });

  test("a link has the times that are shown, or those of the reader", async () => {
    const { page, problems, close } = await open(query("http_requests_total", "&g0.tab=graph&g0.range_input=5m&g0.y_max=20"));
    await page.locator(".plot canvas").waitFor();
    await page.getByRole("button", { name: "Share" }).click();
    const link = page.getByRole("textbox", { name: "Link" });
    const fixed = new URL(await link.inputValue());
    deepStrictEqual([fixed.origin, exprOf(fixed), fixed.searchParams.get("g0.y_max")], [server.url, "http_requests_total", "20"]);
    const end = Date.parse(`${fixed.searchParams.get("g0.end_input")}Z`);
    ok(Math.abs(Date.now() - end) < 60_000, `${end}`);
    await page.getByRole("checkbox", { name: "With the times that are shown now" }).uncheck();
    strictEqual(await link.inputValue(), page.url());
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy link" }).click();
    await page.getByText("The link is copied.").waitFor();
    strictEqual(await page.evaluate(() => navigator.clipboard.readText()), page.url());
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("over plain HTTP, a text is copied from a selection, and a failure is said", async () => {
    for (const isAllowed of [true, false]) {
      const { page, close } = await openPage(browser, "about:blank");
      // As on a page over plain HTTP of another machine.
      await page.addInitScript((allowed) => {
        Object.defineProperty(Navigator.prototype, "clipboard", { value: undefined });
        if (!allowed) document.execCommand = () => false;
      }, isAllowed);
      await page.goto(server.url + query("vector(42)"));
      await page.getByRole("cell", { name: "42", exact: true }).waitFor();
      const share = page.getByRole("button", { name: "Share" });
      await share.click();
      const copy = page.getByRole("button", { name: "Copy link" });
      const link = page.getByRole("textbox", { name: "Link" });
      const text = await link.inputValue();
      await copy.click();
      await page.getByText(isAllowed ? "The link is copied." : "The browser does not allow the page to copy.").waitFor();
      strictEqual(await copy.evaluate((button) => button === document.activeElement), true, "the button keeps the focus");
      const name = page.getByRole("textbox", { name: "Name" });
      await name.focus();
      await page.keyboard.press("Control+v");
      if (isAllowed) strictEqual(await name.inputValue(), text.slice(0, 100));
      await page.goto(`${server.url}/store`);
      const section = page.locator(".section", { has: page.getByRole("heading", { name: "Configuration", exact: true }) });
      await section.getByRole("button", { name: "Copy", exact: true }).click();
      await section.getByText(isAllowed ? "Copied" : "Select the text and copy it.").waitFor();
      await close();
    }
  });

  test("two tabs keep each other's saved panels and queries", async () => {
    const { page: first, close } = await open(query("vector(1)"));
    await first.getByRole("cell", { name: "1", exact: true }).waitFor();
    const second = await first.context().newPage();
    await second.goto(server.url + query("vector(2)"));
    await second.getByRole("cell", { name: "2", exact: true }).waitFor();
    const save = async (page, name) => {
      await page.getByRole("textbox", { name: "Name" }).fill(name);
      await page.getByRole("button", { name: "Save", exact: true }).click();
    };
    for (const page of [first, second]) await page.getByRole("button", { name: "Share" }).click();
    await save(first, "one");
    // The open dialog of the other tab has it at once.
    await second.getByRole("button", { name: "Delete one" }).waitFor();
    // A browser may hold events back from a tab that is not seen.
    await second.evaluate(() => addEventListener("storage", (event) => event.stopImmediatePropagation(), true));
    await save(second, "two");
    await first.getByRole("button", { name: "Delete two" }).waitFor();
    await save(first, "three");
    await save(second, "four");
    const kept = () => first.evaluate(() => [JSON.parse(localStorage.getItem("varve.saved")).map(({ name }) => name), JSON.parse(localStorage.getItem("varve.history"))]);
    deepStrictEqual(await kept(), [["four", "three", "two", "one"], ["vector(2)", "vector(1)"]]);
    await close();
  });

  test("a panel is saved under a name, opened and deleted", async () => {
    const { page, problems, close } = await open(query("sum by (job) (http_requests_total)", "&g0.expr2=vector(1)&g0.tab=graph&g0.range_input=7m"), { width: 390, theme: "dark" });
    await page.locator(".plot canvas").waitFor();
    const share = page.getByRole("button", { name: "Share" });
    await share.click();
    await page.getByRole("textbox", { name: "Name" }).fill("Requests");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByRole("button", { name: "Delete Requests" }).waitFor();
    deepStrictEqual(await violations(page), []);
    await page.goto(server.url + query("vector(42)"));
    await page.getByRole("cell", { name: "42", exact: true }).waitFor();
    await share.click();
    await page.getByRole("button", { name: /^Requests / }).click();
    await page.waitForURL((url) => url.searchParams.get("g0.range_input") === "7m" && url.searchParams.get("g0.expr2") === "vector(1)");
    await settle(page);
    strictEqual(await page.locator(".legend tbody tr").count(), 3);
    await share.click();
    await page.getByRole("button", { name: "Delete Requests" }).click();
    await page.getByText("Nothing is saved yet.").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("saved panels are bounded", async () => {
    const { page, close } = await open(query("vector(1)"));
    await page.evaluate(() => localStorage.setItem("varve.saved", JSON.stringify(Array.from({ length: 100 }, (_, i) => ({ name: `n${i}`, params: "g0.expr=up" })))));
    await page.reload();
    await page.getByRole("button", { name: "Share" }).click();
    await page.getByText("At most 100 panels can be saved.").waitFor();
    await page.getByRole("textbox", { name: "Name" }).fill("another");
    strictEqual(await page.getByRole("button", { name: "Save", exact: true }).isDisabled(), true);
    // One of the same name replaces the old one.
    await page.getByRole("textbox", { name: "Name" }).fill("n5");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByRole("button", { name: "n5 vector(1)" }).waitFor();
    await close();
  });

  test("the history has the query of a link", async () => {
    const { page, close } = await open(query("count(http_requests_total)"));
    await page.getByRole("cell", { name: "12", exact: true }).waitFor();
    await page.getByRole("button", { name: "History" }).click();
    await page.getByRole("dialog", { name: "Earlier queries" }).getByText("count(http_requests_total)").waitFor();
    await close();
  });
});
