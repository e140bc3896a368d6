// Who may do what, and where the page is: tokens, a sub-path behind a proxy, a store that is not open yet.

import { deepStrictEqual, match, strictEqual } from "node:assert";
import { after, before, describe, test } from "node:test";
import { missing, openPage, startBrowser, startProxy, startServer } from "./harness.mjs";

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
  const cell = (page) => page.getByText("42", { exact: true }).first();

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
    await page.getByText("the token lacks the scope read").first().waitFor();
    await close();
  });

  test("the page works under a sub-path", async () => {
    const proxy = await startProxy(open.url, "/deep/path");
    const { page, problems, close } = await openPage(browser, `${proxy.url}/`);
    match(page.url(), /\/deep\/path\/query$/);
    for (const title of ["Cardinality", "Store", "Metrics"]) {
      await page.getByRole("link", { name: title, exact: true }).click();
      await page.getByRole("heading", { name: title, exact: true }).waitFor();
      await page.reload();
      await page.getByRole("heading", { name: title, exact: true }).waitFor();
    }
    await page.goto(proxy.url + PATH);
    await cell(page).waitFor();
    await page.locator(".cm-content").waitFor();
    deepStrictEqual(problems, []);
    await close();
    await proxy.stop();
  });

  test("the page shows the progress of the replay, then continues by itself", async () => {
    let current = 0;
    const proxy = await startProxy(open.url, "", (request, response) => {
      const isData = request.url.startsWith("/api/") || request.url.startsWith("/-/");
      if (!isData || current >= 4) return false;
      if (request.url.includes("walreplay")) {
        current += 1;
        response.writeHead(200, { "Content-Type": "application/json", "X-Varve-Replay-State": "running" });
        response.end(JSON.stringify({ status: "success", data: { min: 0, max: 4, current } }));
      } else {
        // As the server responds before the store is open.
        response.writeHead(503, { "X-Prometheus-Stopping": "false", "Retry-After": "5" }).end("Service Unavailable");
      }
      return true;
    });
    const { page, problems, close } = await openPage(browser, proxy.url + PATH, { expected: ["503"] });
    await page.getByText(/[1-4] of 4 log files/).waitFor();
    await cell(page).waitFor();
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
