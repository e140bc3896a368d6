// Measures the page in the browser, for docs/performance.md. Nothing is asserted.
//   node tests/ui/figures.mjs

import { loadavg } from "node:os";
import { answerRanges, missing, openPage, settle, startBrowser, startServer } from "./harness.mjs";
import { CLUSTER, addCluster, recorder, send } from "./training.mjs";

const ROUNDS = 6;

/** Returns the time from the last byte of a result to the frame that shows all lines, the CPU time of the page's main thread,
 * and the longest task meanwhile, of the first run and as medians of the others. */
async function draw(browser, url, nSeries, nPoints) {
  const { page, close } = await openPage(browser, `${url}/query?g0.expr=m&g0.tab=graph&g0.range_input=${nPoints - 1}s&g0.res_step=1s`);
  await page.locator(".cm-content").waitFor();
  await answerRanges(page, nSeries, nPoints);
  await page.evaluate((linesMin) => {
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
    // Each line is a stroke. The grid of the axes has another color.
    const context = document.createElement("canvas").getContext("2d");
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--grid").trim();
    const grid = context.strokeStyle;
    let nStrokes = 0;
    let drawn = () => {};
    const { stroke } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.stroke = function (...path) {
      stroke.apply(this, path);
      if (globalThis.received !== undefined && this.strokeStyle !== grid && ++nStrokes === linesMin) drawn();
    };
    globalThis.measureRun = async () => {
      tasks.length = 0;
      nStrokes = 0;
      globalThis.received = undefined;
      document.querySelector(".panel-query button").click();
      await new Promise((resolve) => (drawn = resolve));
      // A frame that begins after the strokes shows them. The timer runs when it has been drawn.
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const shown = performance.now() - globalThis.received;
      // The browser reports tasks later.
      await new Promise((resolve) => setTimeout(resolve, 2000));
      note(observer.takeRecords());
      return { shown, longest: Math.max(0, ...tasks) };
    };
  }, nSeries);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const cpu = async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000;
  const rounds = [];
  for (let i = 0; i < ROUNDS; i++) {
    const before = await cpu();
    const round = await page.evaluate(() => globalThis.measureRun());
    rounds.push({ ...round, cpu: (await cpu()) - before });
  }
  await page.locator(".plot .u-over").waitFor();
  const plot = await page.locator(".plot .u-over").boundingBox();
  const moved = await page.evaluate(() => performance.now());
  for (let i = 0; i < 50; i++) await page.mouse.move(plot.x + plot.width * (0.2 + i / 100), plot.y + 100 + i);
  const hover = (await page.evaluate(() => performance.now())) - moved;
  await close();
  const [first, ...others] = rounds;
  const middle = (name) => median(others.map((round) => round[name]));
  return { first, later: { shown: middle("shown"), cpu: middle("cpu"), longest: middle("longest") }, hover: hover / 50 };
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

/** Pages of training jobs, each with what it shows last. */
const JOB_PAGES = [
  [`list of ${CLUSTER.jobs} jobs`, "jobs", "table.data tbody tr"],
  [`64 of ${CLUSTER.nodes * 8} GPUs of a job`, `jobs?job=${encodeURIComponent(CLUSTER.job)}`, ".heat-rows li:nth-child(64)"],
  ["nodes", "jobs?view=nodes", "main .empty, table.data tbody tr"],
];

const SCREENS = ["light", "dark"].flatMap((theme) => [1440, 390].map((width) => ({ theme, width })));

/** Returns the time from a click on a link until the frame that shows a page, and the CPU time of the page's main thread. */
async function openLink(browser, url, screen, path, shown) {
  const rounds = [];
  for (let i = 0; i < ROUNDS; i++) {
    const { page, close } = await openPage(browser, `${url}/query`, screen);
    // The browser has loaded the page's code, as it does when it is idle.
    await page.waitForFunction(() => performance.getEntriesByType("resource").some(({ name, responseEnd }) => name.includes("/jobs-") && responseEnd > 0));
    await settle(page);
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable", { timeDomain: "threadTicks" });
    const cpu = async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000;
    const before = await cpu();
    const time = await page.evaluate(
      async ([href, selector]) => {
        const link = document.createElement("a");
        link.href = href;
        link.dataset.page = "";
        document.body.append(link);
        const clicked = performance.now();
        link.click();
        await new Promise((resolve) => {
          const look = () => document.querySelector(selector) && resolve();
          new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
          look();
        });
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        return performance.now() - clicked;
      },
      [path, shown],
    );
    rounds.push({ shown: time, cpu: (await cpu()) - before });
    await close();
  }
  return { shown: median(rounds.map((round) => round.shown)), least: Math.min(...rounds.map((round) => round.shown)), cpu: median(rounds.map((round) => round.cpu)) };
}

async function jobFigures(browser, ms) {
  const server = await startServer();
  const data = recorder();
  addCluster(data);
  await send(server, data);
  for (const screen of SCREENS) {
    for (const [name, path, shown] of JOB_PAGES) {
      const figures = await openLink(browser, server.url, screen, path, shown);
      console.log(`${name}, ${screen.theme}, ${screen.width} px: shown ${ms(figures.shown)} after the click (at least ${ms(figures.least)}), CPU ${ms(figures.cpu)}, load ${loadavg()[0].toFixed(1)}`);
    }
  }
  await server.stop();
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
    const { hover, ...runs } = await draw(browser, server.url, nSeries, nPoints);
    console.log(`${nSeries} series x ${nPoints} points, pointer ${ms(hover)} per move`);
    for (const [name, { shown, cpu, longest }] of Object.entries(runs)) {
      console.log(`  ${name}: shown ${ms(shown)} after the last byte, CPU ${ms(cpu)}, longest task ${ms(longest)}`);
    }
  }
  await server.stop();
  await jobFigures(browser, ms);
  await browser.close();
}

await main();
