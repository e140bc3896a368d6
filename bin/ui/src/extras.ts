/** What the first graph does not need. The page loads it as one file, on demand: app/lazy.tsx. */

export { HeatChart } from "./chart/heat_chart";
export { ExplainView } from "./query/explain_view";
export { rawQuery, timesOf } from "./query/raw";
export { TimeRange } from "./query/time_range";
export { TreeView } from "./query/tree_view";
