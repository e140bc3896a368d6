import { ok, rejects, strictEqual } from "node:assert";
import { test } from "node:test";
import { parseJson } from "../src/api/json";

const HOSTILE = ['},{"metric":{"a":"1"}', '\\},{"metric":', "},{", '"metric":', "\\", '"', "\u2028]}"];
const values = Array.from({ length: 500 }, (_, i) => [i, String(i / 7)]);
const series = (i: number) => ({ metric: { __name__: "m", i: String(i), x: HOSTILE[i % HOSTILE.length] ?? "" }, values });
const response = (n: number) => ({ status: "success", data: { resultType: "matrix", result: Array.from({ length: n }, (_, i) => series(i)), stats: { samples: { samplesRead: n } } }, warnings: ["w"], infos: ["},{"] });

/** Counts calls of JSON.parse, and lets each look at the clock end a slice. */
async function counted(run: () => Promise<unknown>): Promise<number> {
  const [{ parse }, now] = [JSON, performance.now];
  let [nParsed, ms] = [0, 0];
  JSON.parse = (text: string) => (nParsed++, parse(text));
  performance.now = () => (ms += 100);
  await run().finally(() => ([JSON.parse, performance.now] = [parse, now]));
  return nParsed;
}

test("a response is parsed as JSON.parse does, a large result of a range query in pieces", async () => {
  const vector = { ...response(0), data: { resultType: "vector", result: response(1000).data.result.map(({ metric, values: [value] }) => ({ metric, value })) } };
  const nested = { ...response(0), data: { ...response(100).data, rest: [{ metric: 1 }, { metric: 2 }] } };
  const native = { ...response(0), data: { resultType: "matrix", result: Array.from({ length: 3000 }, (_, i) => ({ metric: { i: String(i) }, histograms: [[1, { count: "3", sum: "4", buckets: [[0, "1", "2", "3"]] }]] })) } };
  const texts = { status: "success", data: Array.from({ length: 10_000 }, () => HOSTILE) };
  for (const one of [response(0), response(1), response(2), response(3), response(100), response(1000), vector, native, nested, texts]) {
    const text = JSON.stringify(one);
    strictEqual(JSON.stringify(await parseJson(text)), text);
  }
  const big = JSON.stringify(response(1000));
  ok((await counted(() => parseJson(big))) > big.length / 300_000);
  strictEqual(await counted(() => parseJson(JSON.stringify(response(3)))), 1);
});

test("an incomplete response is the error of JSON.parse", async () => {
  const text = JSON.stringify(response(1000));
  for (const size of [text.length - 1, text.length >> 1, text.lastIndexOf("},{") + 3, text.indexOf("},{") + 3]) await rejects(parseJson(text.slice(0, size)), SyntaxError);
});

test("a canceled request is parsed no further", async () => {
  const own = new AbortController();
  const text = JSON.stringify(response(1000));
  const run = async () => {
    const parsed = parseJson(text, own.signal);
    own.abort();
    await rejects(parsed, { name: "AbortError" });
  };
  strictEqual(await counted(run), 2);
});
