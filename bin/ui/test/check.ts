/** One table of cases for a function: each case has the arguments and the expected result. */

import { deepStrictEqual } from "node:assert";
import { test } from "node:test";

export function check<A extends unknown[], R>(name: string, run: (...args: A) => R, cases: Array<[args: A, expected: R]>): void {
  test(name, () => {
    for (const [args, expected] of cases) deepStrictEqual(run(...args), expected, JSON.stringify(args));
  });
}
