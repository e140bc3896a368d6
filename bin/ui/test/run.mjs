// Runs the unit tests: bundles them for Node, which does not read TypeScript, and starts Node's test runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const here = import.meta.dirname;
const outdir = await mkdtemp(join(tmpdir(), "varve-ui-"));
const names = (await readdir(here)).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: names.map((name) => join(here, name)),
  bundle: true,
  platform: "node",
  format: "esm",
  outExtension: { ".js": ".mjs" },
  jsx: "automatic",
  jsxImportSource: "preact",
  // What modules read of the browser when they are loaded.
  banner: { js: 'globalThis.location ??= new URL("http://localhost/query"); globalThis.matchMedia ??= () => ({ matches: false });' },
  sourcemap: "inline",
  outdir,
});
const files = names.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")));
const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit" });
await rm(outdir, { recursive: true });
process.exitCode = status ?? 1;
