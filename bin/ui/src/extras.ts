/** What the first graph does not need. The page loads it as one file, on demand: app/lazy.tsx. */

export { HeatChart } from "./chart/heat_chart";
export { MetricGraphs } from "./pages/metric_graphs";
export { DidYouMean } from "./query/did_you_mean";
export { ExplainView } from "./query/explain_view";
export { LabelTable } from "./query/label_table";
export { rawQuery, timesOf } from "./query/raw";
export { Share } from "./query/share";
export { TimeRange } from "./query/time_range";
export { TreeView } from "./query/tree_view";
