import { webUrl } from "../src/parts/view";
import { check } from "./check";

check("only URLs of http and https are links", webUrl, [
  [["https://example.org/runbook?a=b#c"], "https://example.org/runbook?a=b#c"],
  [["HTTP://example.org"], "http://example.org/"],
  [["javascript:alert(1)"], undefined],
  [["data:text/html,x"], undefined],
  [["//example.org"], undefined],
  [["see https://example.org"], undefined],
  [["https://"], undefined],
]);
