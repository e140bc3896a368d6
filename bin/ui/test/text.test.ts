import { strictEqual } from "node:assert";
import { test } from "node:test";
import { encode } from "../src/api/client";
import { bytes, count, group, parseShort, percent, plural, seconds, short, withUnit } from "../src/parts/format";
import { compareLabels, labelName, metricSelector, printLabels, quote } from "../src/parts/labels";
import { ago, axisLabels, dateTime, isUtc, isoTime, parseDateTime, parseDuration, parseTime, printDuration, toInput } from "../src/parts/time";
import { check } from "./check";

isUtc.set(true);

check("short numbers", short, [[[0], "0"], [[999.96], "1k"], [[12_345], "12.35k"], [[1e6], "1M"], [[-2.5e9], "-2.5G"], [[0.00012], "1.20e-4"], [[2e15], "2P"], [[-3.5e18], "-3.5E"], [[2e25], "2.00e+25"], [[NaN], "NaN"], [[Infinity], "+Inf"], [[-Infinity], "-Inf"]]);
check("counts", count, [[[1234], "1,234"], [[9999], "9,999"], [[123_456], "123.5k"], [[0.5], "0.5"]]);
check("grouped digits", group, [[[1_234_567], "1,234,567"], [[-1234.5], "-1,234.5"], [[1e21], "1e+21"]]);
check("bytes", bytes, [[[0], "0 B"], [[999], "999 B"], [[1023], "0.999 KiB"], [[1536], "1.5 KiB"], [[1002 * 1024], "0.979 MiB"], [[300 * 1024 ** 2], "300 MiB"], [[2e15], "1.78 PiB"]]);
check("shares", percent, [[[0], "0 %"], [[0.00001], "<0.1 %"], [[0.054], "5.4 %"], [[0.0996], "10 %"], [[0.5], "50 %"]]);
check("measured times", seconds, [[[0.0000123], "12 µs"], [[0.0123], "12.3 ms"], [[1.5], "1.5 s"], [[600], "10 min"], [[7200], "2 h"]]);
check("numbers with a unit", withUnit, [[[640, "W"], "640 W"], [[126_300, "W"], "126 kW"], [[0, "W"], "0 W"]]);
check("plurals", plural, [[[1, "row"], "1 row"], [[2, "row"], "2 rows"], [[2, "series", "series"], "2 series"]]);

check("durations are parsed", parseDuration, [[["1h30m"], 5_400_000], [["15"], 15_000], [["0.5"], 500], [["250ms"], 250], [["1y"], 31_536_000_000], [["30m1h"], undefined], [[""], undefined], [["1 h"], undefined]]);
check("durations are printed", printDuration, [[[0], "0s"], [[5_400_000], "1h30m"], [[86_400_000 * 10], "10d"], [[604_800_000], "1w"], [[87_000], "1m27s"], [[1500], "1s500ms"]]);
check("times are parsed", (text: string) => parseDateTime(text, true), [[["2026-11-23T14:05"], Date.UTC(2026, 10, 23, 14, 5)], [["2026-11-23 14:05:09.5"], Date.UTC(2026, 10, 23, 14, 5, 9, 500)], [["23.11.2026"], undefined]]);
check("times are printed", dateTime, [[[Date.UTC(2026, 10, 3, 4, 5, 6, 7)], "2026-11-03 04:05:06"], [[Date.UTC(2026, 10, 3, 4, 5, 6, 7), true], "2026-11-03 04:05:06.007"], [[NaN], "–"]]);
check("an axis names the day where it changes", axisLabels, [
  [[[Date.UTC(2026, 0, 1, 23), Date.UTC(2026, 0, 2, 0), Date.UTC(2026, 0, 2, 1)], 3_600_000], ["23:00\n2026-01-01", "00:00\n2026-01-02", "01:00"]],
  [[[Date.UTC(2026, 0, 1)], 86_400_000], ["2026-01-01"]],
]);
check("ages", ago, [[[0, 5], "never"], [[1000, 31_000], "30s ago"], [[1000, 3_601_000], "1h ago"], [[1000, 86_400_000 * 3], "2d ago"]]);

test("an input field shows what it parses", () => {
  const ms = Date.UTC(2026, 1, 3, 4, 5, 6);
  strictEqual(parseDateTime(toInput(ms)), ms);
});

check("label sets are printed as selectors that match them", (labels: Record<string, string>) => printLabels(labels), [
  [[{ __name__: "up" }], "up"],
  [[{ __name__: "up", job: "a\"b\\c\nd" }], 'up{job="a\\"b\\\\c\\nd"}'],
  [[{ __name__: "<img src=x>", "a.b": "1" }], '{"<img src=x>", "a.b"="1"}'],
  [[{}], "{}"],
]);
check("control characters are escaped", quote, [[["\u0085\u2028"], '"\\u0085\\u2028"'], [["é"], '"é"']]);
check("names in groupings", labelName, [[["job"], "job"], [["a.b"], '"a.b"'], [["1a"], '"1a"']]);
check("a selector of a metric", metricSelector, [[["up", { le: "0.1" }], 'up{le="0.1"}']]);
check("label sets are compared", compareLabels, [
  [[[]], { common: {}, varying: [] }],
  [[[{ __name__: "up", a: "1" }]], { common: {}, varying: ["__name__", "a"] }],
  [[[{ __name__: "up", a: "1", b: "x" }, { __name__: "up", a: "1", b: "y", c: "z" }]], { common: { __name__: "up", a: "1" }, varying: ["b", "c"] }],
]);
check("parameters are encoded", encode, [[[{ "match[]": ["a", "b c"], limit: 0, start: undefined, end: "" }], "match%5B%5D=a&match%5B%5D=b+c&limit=0"]]);

check("times that a user types", (text: string) => {
  isUtc.set(true);
  return parseTime(text, 1_000_000_000_000);
}, [
  [["2026-11-23T14:05:09Z"], Date.UTC(2026, 10, 23, 14, 5, 9)],
  [["2026-11-23T14:05:09+02:00"], Date.UTC(2026, 10, 23, 12, 5, 9)],
  [["2026-11-23 14:05"], Date.UTC(2026, 10, 23, 14, 5)],
  [["2026-11-23"], Date.UTC(2026, 10, 23)],
  [["1795701909"], 1_795_701_909_000],
  [["now"], 1_000_000_000_000],
  [["-1h"], 999_996_400_000],
  [["now - 90s"], 999_999_910_000],
  [["yesterday"], undefined],
  [["2026-13-45T00:00:00Z"], undefined],
]);
check("a time in ISO 8601", (ms: number) => {
  isUtc.set(true);
  return isoTime(ms);
}, [[[0], "1970-01-01T00:00:00Z"], [[1500], "1970-01-01T00:00:01.500Z"]]);
check("numbers that a user types", parseShort, [[["1.5k"], 1500], [["-2M"], -2e6], [["1e3"], 1000], [["0"], 0], [["x"], undefined], [[""], undefined], [["1k5"], undefined]]);
