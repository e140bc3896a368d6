// Targets, as the series `up` and those of scrapes tell: down ones first, grouped by job, with the age of the last sample.

import { deepStrictEqual, match, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, settle, startBrowser, startServer, violations, wideTables } from "./harness.mjs";

/** More targets of a job than the page asks for. */
const MANY = 503;

describe("targets", { skip: missing() }, () => {
  let server;
  let browser;
  before(async () => {
    server = await startServer({ flags: ["--self-scrape-interval=0s"] });
    const now = Date.now();
    const target = (job, instance, up, ageS, more = "") => {
      const labels = `{job="${job}",instance="${instance}"${more}}`;
      const at = now - ageS * 1000;
      return `up${labels} ${up} ${at}\nscrape_duration_seconds${labels} 0.25 ${at}\nscrape_samples_scraped${labels} 1234 ${at}\n`;
    };
    const body = [
      target("node", "n1", 1, 10),
      target("node", "n2:9100", 0, 10, ',zone="z"'),
      target("node", "n3", 1, 20 * 60),
      target("api", "a.b", 1, 10),
      ...Array.from({ length: MANY }, (_, i) => target("many", `m${String(i).padStart(3, "0")}`, i === MANY - 1 ? 0 : 1, 10)),
      // Its series ended, as that of a target that was removed.
      target("node", "gone", 1, 60),
      `up{job="node",instance="gone"} NaN ${now - 30_000}\n`,
      // Too old.
      target("node", "old", 1, 2 * 3600),
    ].join("");
    const stored = await server.post("/api/v1/import/prometheus?nan=marker", body, "text/plain");
    strictEqual(stored.status, 204, await stored.text());
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const figures = (page) => page.locator("dl.figures dd").allInnerTexts();
  const rows = (page, job) => page.getByRole("region", { name: `Targets of ${job}` }).locator("tbody tr");

  test("down targets come first, with the age of the last sample", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/targets`);
    await page.getByText("Varve does not scrape.").waitFor();
    await rows(page, "node").first().waitFor();
    deepStrictEqual(await figures(page), [String(MANY + 4), "2", "3"]);
    const jobs = await page.locator("details.rule summary").allInnerTexts();
    deepStrictEqual(jobs.map((text) => text.split("\n").map((part) => part.trim()).filter(Boolean).join(" ").replace(/\d+m ago/, "20m ago")), [
      "1 down many 503 targets",
      "1 down node 3 targets last sample 20m ago",
      "up api 1 target",
    ]);
    const texts = await rows(page, "node").allInnerTexts();
    deepStrictEqual(texts.map((text) => text.split(/\s+/).filter(Boolean).slice(0, 2)), [["down", "n2:9100"], ["up", "n1"], ["up", "n3"]]);
    match(texts[0], /\{zone="z"\}/);
    match(texts[0], /\d+s ago\s+250 ms\s+1,234/);
    match(texts[2], /20m ago|21m ago/);
    strictEqual(await rows(page, "node").nth(2).locator(".tag.warn").count(), 1, "an old sample is marked");
    strictEqual(await page.getByText("gone").count() + (await page.getByText("old", { exact: true }).count()), 0);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
  });

  test("a job with many targets shows a part, down ones first", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/targets`);
    await rows(page, "many").first().waitFor();
    await page.getByText(`500 of ${MANY} targets, down ones first`).waitFor();
    match(await rows(page, "many").first().innerText(), /^down\s+m502/);
    match(await rows(page, "many").first().innerText(), /s ago\s+250 ms/);
    deepStrictEqual(problems, []);
    await close();
  });

  test("with more jobs than the page lists, those with down targets are listed, and the figures are those of all", async () => {
    const crowded = await startServer({ flags: ["--self-scrape-interval=0s"] });
    const nJobs = 503;
    const lines = Array.from({ length: nJobs }, (_, i) => `up{job="j${String(i).padStart(3, "0")}",instance="a"} ${i === nJobs - 1 ? 0 : 1}\n`);
    strictEqual((await crowded.post("/api/v1/import/prometheus", `${lines.join("")}up{job="j000",instance="only"} 1\n`, "text/plain")).status, 204);
    const { page, problems, close } = await openPage(browser, `${crowded.url}/targets`);
    await page.getByText("The list shows 500 of 503 jobs, those with the most down targets. 3 jobs are not shown").waitFor();
    deepStrictEqual(await figures(page), [String(nJobs + 1), "1", String(nJobs)]);
    strictEqual(await page.locator("details.rule").count(), 500);
    match((await page.locator("details.rule summary").first().innerText()).replaceAll(/\s+/g, " "), /1 down j502 1 target/);
    await page.getByLabel("Search instances").fill("only");
    await rows(page, "j000").first().waitFor();
    deepStrictEqual(await figures(page), ["1", "0", "1"]);
    deepStrictEqual([...problems, ...(await violations(page))], []);
    await close();
    await crowded.stop();
  });

  test("instances are searched as text, not as a regular expression", async () => {
    const { page, problems, close } = await openPage(browser, `${server.url}/targets`);
    await rows(page, "node").first().waitFor();
    await page.getByLabel("Search instances").fill("A.");
    await rows(page, "api").first().waitFor();
    deepStrictEqual(await figures(page), ["1", "0", "1"]);
    await page.getByLabel("Search instances").fill(".*(");
    await page.getByText("No instance contains this text.").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  for (const width of [390, 320]) {
    test(`the page fits a screen of ${width} px`, async () => {
      const { page, problems, close } = await openPage(browser, `${server.url}/targets`, { width, theme: "dark" });
      await rows(page, "node").first().waitFor();
      await settle(page);
      strictEqual(await page.evaluate(() => document.scrollingElement.scrollWidth), width);
      deepStrictEqual(await wideTables(page), []);
      deepStrictEqual([...problems, ...(await violations(page))], []);
      await close();
    });
  }
});
