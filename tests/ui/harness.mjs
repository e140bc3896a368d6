// What the browser tests share: a server with fleet data, a browser, pages whose errors fail the test, a reverse proxy.

import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");
const require = createRequire(join(root, "bin/ui/package.json"));
const bin = (name) => join(process.env.VARVE_BIN_DIR ?? join(root, "target/debug"), name);

/** Series of the fleet. */
export const SERIES = 20_000;

/** Returns why the tests cannot run here, or false. Throws instead if `VARVE_REQUIRE_ORACLES` is set. */
export function missing() {
  const reason = missingProgram();
  if (reason && process.env.VARVE_REQUIRE_ORACLES) throw new Error(reason);
  return reason;
}

function missingProgram() {
  if (!chromium()) return "chromium is not on PATH (../shared/peers/install-browser)";
  const absent = ["varve", "varve-bench"].find((name) => !existsSync(bin(name)));
  return absent ? `${bin(absent)} does not exist (cargo build --workspace --bins)` : false;
}

function chromium() {
  const found = spawnSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" });
  return process.env.CHROMIUM ?? found.stdout.trim();
}

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts a server on an empty data directory. `files` are written below it, and `flags` may name them as `DIR/…`. */
export async function startServer({ flags = [], files = {}, token, path = "" } = {}) {
  const dir = await mkdtemp(join(tmpdir(), "varve-ui-"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}${path}`;
  const args = ["serve", "--web.listen-address", `127.0.0.1:${port}`, "--storage.tsdb.path", join(dir, "data"), "--log.level=warn"];
  let child;
  const start = () => {
    child = spawn(bin("varve"), [...args, ...flags.map((flag) => flag.replace("DIR", dir))], { stdio: ["ignore", "ignore", "inherit"] });
    child.unref();
  };
  const end = async (signal) => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.ref();
    child.kill(signal);
    await ended;
  };
  start();
  // A test that fails or is interrupted leaves no server behind.
  process.once("exit", () => child.kill("SIGKILL"));
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  await waitUntil("the server is ready", async () => (await fetch(`${url}/-/ready`, { headers })).ok);
  return {
    url,
    headers,
    post: (target, body, type) => fetch(url + target, { method: "POST", body, headers: { ...headers, "Content-Type": type } }),
    /** Ends the process as a crash does. */
    kill: () => end("SIGKILL"),
    /** Starts the process again, and does not wait until it is ready. */
    start,
    /** Lets the process run a tenth of the time, as on a slow machine, until the returned function is called. */
    throttle: () => {
      const slowed = child;
      const timer = setInterval(() => {
        slowed.kill("SIGCONT");
        setTimeout(() => slowed.kill("SIGSTOP"), 10);
      }, 100).unref();
      return () => {
        clearInterval(timer);
        setTimeout(() => slowed.kill("SIGCONT"), 50);
      };
    },
    stop: async () => {
      await end("SIGTERM");
      await rm(dir, { recursive: true });
    },
  };
}

/** Writes the last `duration` of the fleet, and a few minutes ahead, so that a slow test still finds samples. */
export function writeFleet({ url }, { duration = "30m", series = SERIES } = {}) {
  const minutes = Number.parseInt(duration, 10);
  const start = new Date(Date.now() - (minutes - 8) * 60_000).toISOString();
  const args = ["write", `${url}/api/v1/write`, "--active-series", String(series), "--duration", duration, "--interval", "60s", "--churn", "0.05", "--start", start];
  const { status, stderr } = spawnSync(bin("varve-bench"), args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`varve-bench: ${stderr}`);
}

/** Waits at most 60 s until `condition` is true. Errors count as false. */
export async function waitUntil(what, condition) {
  const deadline = Date.now() + 60_000;
  while (Date.now() < deadline) {
    if (await Promise.resolve().then(condition).catch(() => false)) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`not within 60 s: ${what}`);
}

/** Starts the browser. */
export function startBrowser() {
  return require("playwright-core").chromium.launch({ executablePath: chromium(), args: ["--no-sandbox"] });
}

/** Opens a page. `problems` collects errors of scripts, of the content security policy, and requests to other origins. */
export async function openPage(browser, url, { theme = "light", width = 1440, height = 900, expected = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, timezoneId: "UTC" });
  const page = await context.newPage();
  const problems = [];
  const isExpected = (text) => expected.some((part) => text.includes(part));
  page.on("console", (message) => message.type() === "error" && !isExpected(message.text()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("dialog", (dialog) => (problems.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  const { origin } = new URL(url);
  page.on("request", (request) => {
    const target = request.url();
    if (!target.startsWith(`${origin}/`) && !/^(data|blob):/.test(target)) problems.push(`request to ${target}`);
  });
  page.setDefaultTimeout(30_000);
  await page.goto(url);
  return { page, problems, close: () => context.close() };
}

/** Answers range queries of a page with `nSeries` series of `nPoints` points, in the server's form. */
export async function answerRanges(page, nSeries, nPoints) {
  const values = (i, start, step) => Array.from({ length: nPoints }, (_, t) => [start + t * step, String(Math.sin((t + i) / 20) * 50 + i)]);
  await page.route("**/api/v1/query_range", (route) => {
    const form = new URLSearchParams(route.request().postData());
    const [start, step] = [Number(form.get("start")), Number(form.get("step"))];
    const result = Array.from({ length: nSeries }, (_, i) => ({ metric: { __name__: "m", instance: `gpu-${i}`, job: "node" }, values: values(i, start, step) }));
    return route.fulfill({ contentType: "application/json", body: JSON.stringify({ status: "success", data: { resultType: "matrix", result } }) });
  });
}

/** Returns violations of serious or critical impact that axe-core finds. */
export async function violations(page) {
  // Through the debugger, as the page's policy forbids scripts that it does not serve.
  await page.evaluate(`${require("axe-core").source}; null`);
  const { violations: found } = await page.evaluate(() => globalThis.axe.run());
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(" | ")}`);
}

/** Returns the tables of a page that are wider than their frame, and by how much. */
export function wideTables(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll(".table-scroll")].filter((one) => one.scrollWidth > one.clientWidth).map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth - one.clientWidth} px`),
  );
}

/** Waits until nothing loads: no text says so, and no part is busy. */
export async function settle(page) {
  await page.waitForFunction(() => !/Loading…|Running…/.test(document.body.innerText) && !document.querySelector('[aria-busy="true"]'));
  await page.waitForTimeout(300);
}

/** Starts a reverse proxy that serves `target` below `prefix`. `intercept` may respond itself. */
export async function startProxy(target, prefix, intercept = () => false) {
  const server = http.createServer((request, response) => {
    if (intercept(request, response)) return;
    if (!request.url.startsWith(`${prefix}/`)) return void response.writeHead(404).end("outside of the prefix");
    const options = { method: request.method, headers: { ...request.headers, host: new URL(target).host, connection: "close" } };
    const forwarded = http.request(target + request.url.slice(prefix.length), options, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const stop = () => (server.closeAllConnections(), new Promise((resolve) => server.close(resolve)));
  return { url: `http://127.0.0.1:${server.address().port}${prefix}`, stop };
}
