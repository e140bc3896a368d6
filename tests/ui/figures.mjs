// Measures the page in the browser, for docs/performance.md. Nothing is asserted.
//   node tests/ui/figures.mjs

import { missing, openPage, settle, startBrowser, startServer } from "./harness.mjs";

const ROUNDS = 5;

/** A response of `nSeries` series with `nPoints` points, as the server sends it. */
function matrix(nSeries, nPoints, start, step) {
  const values = (i) => Array.from({ length: nPoints }, (_, t) => [start + t * step, String(Math.sin((t + i) / 20) * 50 + i)]);
  const result = Array.from({ length: nSeries }, (_, i) => ({ metric: { __name__: "m", instance: `gpu-${i}`, job: "node" }, values: values(i) }));
  return JSON.stringify({ status: "success", data: { resultType: "matrix", result } });
}

/** Returns the time from the last byte of a result to the frame that shows it, its CPU time on the main thread with parsing
 * the response, and the longest task meanwhile. */
async function draw(browser, url, nSeries, nPoints) {
  const { page, close } = await openPage(browser, `${url}/query?g0.expr=m&g0.tab=graph&g0.range_input=${nPoints - 1}s&g0.res_step=1s`);
  await page.locator(".cm-content").waitFor();
  await page.route("**/api/v1/query_range", (route) => {
    const form = new URLSearchParams(route.request().postData());
    return route.fulfill({ contentType: "application/json", body: matrix(nSeries, nPoints, Number(form.get("start")), 1) });
  });
  await page.evaluate(() => {
    const tasks = [];
    const note = (entries) => tasks.push(...entries.map(({ duration }) => duration));
    const observer = new PerformanceObserver((list) => note(list.getEntries()));
    observer.observe({ type: "longtask" });
    const { text } = Response.prototype;
    Response.prototype.text = async function () {
      const body = await text.call(this);
      if (this.url.includes("query_range")) globalThis.received = performance.now();
      return body;
    };
    globalThis.measureRun = async (button) => {
      tasks.length = 0;
      globalThis.received = undefined;
      button.click();
      const isShown = () => globalThis.received !== undefined && !document.querySelector('[aria-busy="true"]') && document.querySelector(".plot canvas");
      await new Promise((resolve) => {
        const changes = new MutationObserver(() => isShown() && resolve(changes.disconnect()));
        changes.observe(document.body, { subtree: true, childList: true, attributes: true });
      });
      // A frame that begins after the change shows it. The timer runs when it has been drawn.
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const drawn = performance.now() - globalThis.received;
      // The browser reports tasks later.
      await new Promise((resolve) => setTimeout(resolve, 2000));
      note(observer.takeRecords());
      return { drawn, longest: Math.max(0, ...tasks) };
    };
  });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const cpu = async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000;
  const rounds = [];
  for (let i = 0; i < ROUNDS; i++) {
    const before = await cpu();
    const round = await page.getByRole("button", { name: "Run" }).evaluate((button) => globalThis.measureRun(button));
    rounds.push({ ...round, cpu: (await cpu()) - before });
  }
  await page.locator(".plot .u-over").waitFor();
  const plot = await page.locator(".plot .u-over").boundingBox();
  const moved = await page.evaluate(() => performance.now());
  for (let i = 0; i < 50; i++) await page.mouse.move(plot.x + plot.width * (0.2 + i / 100), plot.y + 100 + i);
  const hover = (await page.evaluate(() => performance.now())) - moved;
  await close();
  const middle = (name) => median(rounds.map((round) => round[name]));
  return { drawn: middle("drawn"), cpu: middle("cpu"), longest: middle("longest"), hover: hover / 50 };
}

async function firstPaint(browser, url) {
  const times = [];
  for (let i = 0; i < ROUNDS; i++) {
    const { page, close } = await openPage(browser, `${url}/query`);
    await settle(page);
    times.push(
      await page.evaluate(() => ({
        paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
        interactive: performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
      })),
    );
    await close();
  }
  return { paint: median(times.map(({ paint }) => paint)), interactive: median(times.map(({ interactive }) => interactive)) };
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

async function main() {
  const reason = missing();
  if (reason) return console.log(`skipped: ${reason}`);
  const server = await startServer();
  const browser = await startBrowser();
  const ms = (n) => `${Math.round(n)} ms`;
  const { paint, interactive } = await firstPaint(browser, server.url);
  console.log(`first paint ${ms(paint)}, interactive ${ms(interactive)}`);
  for (const [nSeries, nPoints] of [[100, 500], [1000, 500]]) {
    const { drawn, cpu, longest, hover } = await draw(browser, server.url, nSeries, nPoints);
    console.log(`${nSeries} series x ${nPoints} points: drawn ${ms(drawn)} after the last byte, CPU ${ms(cpu)}, longest task ${ms(longest)}, pointer ${ms(hover)} per move`);
  }
  await browser.close();
  await server.stop();
}

await main();
