// Who may do what, and where the page is: tokens, a sub-path behind a proxy, a store that is not open yet.

import { deepStrictEqual, match, ok, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, startBrowser, startProxy, startServer, waitUntil, writeFleet } from "./harness.mjs";

const TOKENS = `bearer_tokens:
- {name: reader, token: read-secret, scopes: [read]}
- {name: operator, token: admin-secret, scopes: [read, admin]}
- {name: sender, token: write-secret, scopes: [write]}
`;
const PATH = "/query?g0.expr=vector(42)";
const UNAUTHORIZED = ["401", "403"];

describe("access", { skip: missing() }, () => {
  let browser;
  let open;
  let guarded;
  before(async () => {
    browser = await startBrowser();
    open = await startServer();
    guarded = await startServer({
      flags: ["--web.config.file", "DIR/web.yaml", "--web.enable-admin-api"],
      files: { "web.yaml": TOKENS },
      token: "read-secret",
    });
  });
  after(async () => {
    await browser?.close();
    await open?.stop();
    await guarded?.stop();
  });

  const signIn = async (page, secret) => {
    await page.getByLabel("Token or password").fill(secret);
    await page.getByRole("button", { name: "Continue" }).click();
  };
  const cell = (page) => page.getByRole("cell", { name: "42", exact: true });

  test("the page asks for a token, tells a wrong one, and keeps it only in memory", async () => {
    const { page, problems, close } = await openPage(browser, guarded.url + PATH, { expected: UNAUTHORIZED });
    await signIn(page, "wrong");
    await page.getByText("The server rejected these credentials.").waitFor();
    await signIn(page, "read-secret");
    await cell(page).waitFor();
    const saved = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    strictEqual(saved.includes("secret"), false);
    await page.reload();
    await page.getByLabel("Token or password").waitFor();
    deepStrictEqual(problems, []);
    await close();
  });

  test("a request that was sent before the credentials, and denied after, is repeated", async () => {
    const { page, close } = await openPage(browser, "about:blank", { expected: UNAUTHORIZED });
    let isLate = false;
    let deny;
    const denied = new Promise((resolve) => (deny = resolve));
    await page.route("**/api/v1/notifications", async (route) => {
      if (isLate) return route.continue();
      isLate = true;
      await denied;
      return route.fulfill({ status: 401, body: "" });
    });
    await page.goto(guarded.url + PATH);
    await signIn(page, "read-secret");
    await cell(page).waitFor();
    deny();
    await page.waitForResponse((response) => response.url().endsWith("notifications") && response.status() === 200);
    await cell(page).waitFor();
    strictEqual(await page.getByLabel("Token or password").count(), 0);
    await close();
  });

  test("a read-only token reads, and is told that it may not cancel", async () => {
    const { page, close } = await openPage(browser, `${guarded.url}/running`, { expected: UNAUTHORIZED });
    await signIn(page, "read-secret");
    await page.getByText("No request for data runs now.").waitFor();
    const refused = await page.evaluate(async () => (await fetch("api/v1/status/queries/1", { method: "DELETE", headers: { Authorization: "Bearer read-secret" } })).status);
    strictEqual(refused, 403);
    await close();
  });

  test("an operator cancels a query of somebody else", async () => {
    const heavy = 'quantile_over_time(0.5, vector(1)[1000s:1ms])';
    const running = fetch(`${guarded.url}/api/v1/query_range?start=0&end=10000&step=1&query=${encodeURIComponent(heavy)}`, { headers: guarded.headers }).then((response) => response.status, () => 0);
    for (const [secret, expected] of [["read-secret", "Forbidden"], ["admin-secret", undefined]]) {
      const { page, close } = await openPage(browser, `${guarded.url}/running`, { expected: UNAUTHORIZED });
      await signIn(page, secret);
      await page.getByRole("button", { name: /Cancel request/ }).first().click();
      if (expected) await page.getByText(expected).waitFor();
      else strictEqual(await running, 499);
      await close();
    }
  });

  test("a token without the scope read sees why", async () => {
    const { page, close } = await openPage(browser, guarded.url + PATH, { expected: UNAUTHORIZED });
    await signIn(page, "write-secret");
    await page.getByText("the token lacks the scope read").filter({ visible: true }).first().waitFor();
    await close();
  });

  test("a relabel rule is enabled by an operator, after a question", async () => {
    const rule = "{name: no-up, action: drop, source_labels: [__name__], regex: up, disable_on_use: true}";
    const flags = ["--web.config.file", "DIR/web.yaml", "--web.enable-admin-api", "--config.file", "DIR/varve.yaml"];
    const files = { "web.yaml": TOKENS, "varve.yaml": `ingest: {metric_relabel_configs: [${rule}]}\n` };
    const server = await startServer({ flags, files, token: "admin-secret" });
    const write = { method: "POST", body: "up 1\n", headers: { Authorization: "Bearer write-secret", "Content-Type": "text/plain" } };
    strictEqual((await fetch(`${server.url}/api/v1/import/prometheus`, write)).status, 204);
    strictEqual((await fetch(`${server.url}/api/v1/query?query=up`, { headers: server.headers })).status, 200);
    const state = async () => (await (await fetch(`${server.url}/api/v1/status/relabel`, { headers: server.headers })).json()).data.rules[0].state;
    strictEqual(await state(), "dry_run");
    for (const [secret, refused] of [["read-secret", "Forbidden"], ["admin-secret", undefined]]) {
      const { page, close } = await openPage(browser, `${server.url}/usage`, { expected: UNAUTHORIZED });
      await signIn(page, secret);
      await page.getByRole("button", { name: "Enable" }).click();
      const dialog = page.getByRole("dialog", { name: "Enable" });
      await dialog.getByText("Enable the rule no-up?").waitFor();
      strictEqual(await state(), "dry_run", "a question comes first");
      await dialog.getByRole("button", { name: "Enable" }).click();
      if (refused) await dialog.getByText(refused).waitFor();
      else await page.getByText("enforced").waitFor();
      await close();
    }
    strictEqual(await state(), "enforce");
    await server.stop();
  });

  test("the page works under the route prefix, behind a proxy at another path", async () => {
    for (const [external, prefix] of [["/outer/varve", "/inner"], ["/deep/path", "/deep/path"], ["/outer", "/"]]) {
      const path = prefix === "/" ? "" : prefix;
      const server = await startServer({ flags: [`--web.external-url=http://proxy.example${external}/`, `--web.route-prefix=${prefix}`], path });
      const proxy = await startProxy(server.url, external);
      const { page, problems, close } = await openPage(browser, `${proxy.url}/`);
      await page.getByRole("heading", { name: "Overview", exact: true }).waitFor();
      for (const title of ["Cardinality", "Store", "Metrics"]) {
        await page.getByRole("link", { name: title, exact: true }).click();
        await page.getByRole("heading", { name: title, exact: true }).waitFor();
        await page.reload();
        await page.getByRole("heading", { name: title, exact: true }).waitFor();
        ok(new URL(page.url()).pathname.startsWith(`${external}/`), page.url());
      }
      await page.goto(proxy.url + PATH);
      await cell(page).waitFor();
      await page.goto(`${proxy.url}/graph?g0.expr=vector(42)&g0.tab=1`);
      await cell(page).waitFor();
      deepStrictEqual(problems, [], `${external} to ${prefix}`);
      await close();
      await proxy.stop();
      await server.stop();
    }
  });

  test("the page shows a replay, then continues by itself", async (t) => {
    // The log is never flushed.
    const server = await startServer({ flags: ["--storage.head.flush-interval=1d", "--storage.wal.replay-concurrency=1"] });
    writeFleet(server, { duration: "120m" });
    const { page, problems, close } = await openPage(browser, `${server.url}/query?g0.expr=count(node_load1)`, { expected: ["503", "net::ERR_"] });
    const result = page.getByRole("cell", { name: /^\d+$/ });
    await result.waitFor();
    await server.kill();
    server.start();
    const unthrottle = server.throttle();
    await waitUntil("the page is served", async () => (await fetch(`${server.url}/query`)).ok);
    await page.getByRole("button", { name: "Run" }).click();
    // The second text, if the store is open already while the rest of the log is replayed.
    const progress = page.getByText(/The store is opening|The server replays its log/).first();
    // A machine that delays the browser more than the server has replayed before the page asks.
    const isSeen = await progress.waitFor({ timeout: 15_000 }).then(() => true, () => false);
    if (!isSeen) t.diagnostic("the replay ended before the page asked");
    unthrottle();
    await progress.waitFor({ state: "detached" });
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
    await result.waitFor();
    deepStrictEqual(problems, []);
    await close();
    await server.stop();
  });

  test("the page outlives a crash of the server", async () => {
    const server = await startServer();
    const { page, problems, close } = await openPage(browser, `${server.url}/senders`, { expected: ["net::ERR_", "503"] });
    await page.getByText("Nobody wrote since startup.").waitFor();
    await server.kill();
    const unreachable = page.getByRole("alert").getByText("the server cannot be reached").first();
    await unreachable.waitFor();
    // Nobody knows whether that is still true.
    await page.getByText("Nobody wrote since startup.").waitFor({ state: "detached" });
    server.start();
    await unreachable.waitFor({ state: "detached" });
    await page.getByText("Nobody wrote since startup.").waitFor();
    deepStrictEqual(problems, []);
    await close();
    await server.stop();
  });

  test("the page reconnects by itself, and loads what failed meanwhile", async () => {
    const server = await startServer();
    await server.post("/api/v1/import/prometheus", "only_one 1\n", "text/plain");
    const { page, problems, close } = await openPage(browser, `${server.url}/cardinality`, { expected: ["net::ERR_", "503"] });
    await page.getByRole("link", { name: "only_one" }).waitFor();
    await page.evaluate(() => (globalThis.isSamePage = true));
    // The browser loads the editor when it is idle.
    await page.waitForFunction(() => performance.getEntriesByType("resource").some(({ name, responseEnd }) => name.includes("/editor-") && responseEnd > 0));
    const banner = page.getByText("Disconnected.");
    const failed = page.getByRole("alert").getByText("the server cannot be reached").first();
    const query = async () => {
      await page.getByRole("link", { name: "Query", exact: true }).click();
      await page.locator(".cm-content").fill("count(only_one)");
      await page.getByRole("button", { name: "Run" }).click();
    };
    const outages = [
      [() => page.getByRole("link", { name: "Usage", exact: true }).click(), page.getByRole("heading", { name: "Unused", exact: true })],
      [query, page.getByRole("cell", { name: "1", exact: true })],
    ];
    for (const [act, shown] of outages) {
      strictEqual(await banner.count(), 0);
      await server.kill();
      // Nothing on the page of cardinality polls: the shell notices the outage.
      await banner.waitFor();
      await act();
      await failed.waitFor();
      server.start();
      await banner.waitFor({ state: "detached" });
      await shown.waitFor();
      strictEqual(await page.getByRole("alert").count(), 0);
    }
    strictEqual(await page.evaluate(() => globalThis.isSamePage), true, "nobody loaded the page again");
    deepStrictEqual(problems, []);
    await close();
    await server.stop();
  });

  test("a proxy that does not reach the server is an outage, too", async () => {
    let isDown = false;
    const proxy = await startProxy(open.url, "/p", (request, response) => {
      if (isDown && request.url.includes("/api/")) response.writeHead(502).end("Bad Gateway");
      return response.writableEnded;
    });
    const { page, problems, close } = await openPage(browser, `${proxy.url}/senders`, { expected: ["502"] });
    await page.getByText("Nobody wrote since startup.").waitFor();
    isDown = true;
    await page.getByText("Disconnected.").waitFor();
    isDown = false;
    await page.getByText("Disconnected.").waitFor({ state: "detached" });
    await page.getByText("Nobody wrote since startup.").waitFor();
    deepStrictEqual(problems, []);
    await close();
    await proxy.stop();
  });

  test("the shell is served without credentials, with its policy, compressed, and not again", async () => {
    const page = await fetch(`${guarded.url}/query`);
    strictEqual(page.status, 200);
    match(page.headers.get("content-security-policy"), /default-src 'none'.*require-trusted-types-for 'script'/);
    const script = /assets\/varve-[A-Z0-9]+\.js/.exec(await page.text())[0];
    const asset = await fetch(`${guarded.url}/${script}`, { headers: { "Accept-Encoding": "gzip" } });
    strictEqual(asset.headers.get("content-encoding"), "gzip");
    match(asset.headers.get("cache-control"), /immutable/);
    const again = await fetch(`${guarded.url}/query`, { headers: { "If-None-Match": page.headers.get("etag") } });
    strictEqual(again.status, 304);
    strictEqual((await fetch(`${guarded.url}/api/v1/labels`)).status, 401);
  });
});
