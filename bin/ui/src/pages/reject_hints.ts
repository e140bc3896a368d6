/** Hints on how to fix rejected samples, by the reasons of `status/rejects`. */

const HINTS: Record<string, string> = {
  out_of_order: "Two senders write the same series, or a sender retries old samples. Give each sender a label of its own, or raise storage.tsdb.out_of_order_time_window.",
  duplicate_timestamp: "Two senders write the same series with different values. Configure ingest.ha for pairs of servers, or add a label that tells them apart.",
  out_of_bounds: "The samples are older than the store accepts. Raise storage.tsdb.in_order_max_age, or import them.",
  too_old: "The samples are older than storage.tsdb.out_of_order_time_window. Raise it, or find out why the sender lags.",
  too_far_in_future: "The clock of the sender is ahead. Synchronize it, or raise storage.tsdb.ahead_max.",
  missing_metric_name: "The sender's relabel rules remove __name__, or it is not a Prometheus remote-write client.",
  empty_label_name: "The sender creates labels without a name. Look at its relabel rules.",
  duplicate_label_name: "The sender repeats a label name. Upgrade it, or look at its relabel rules.",
  invalid_utf8: "Names and values must be UTF-8. Drop or replace the label at the sender.",
  too_many_labels: "Drop labels at the sender, or raise --ingest.labels-per-series-max.",
  label_name_too_long: "Shorten the name of the label at the sender.",
  label_value_too_long: "Shorten or drop the label at the sender, or raise --ingest.label-value-size-max.",
  label_set_too_large: "Drop labels at the sender: the whole label set is too large.",
  team_active_series: "The team has too many series. Look at its cardinality and churn, or raise its maximum in ingest.teams.",
  active_series: "All teams together have too many series. Look at cardinality and churn, or raise ingest.budget.",
  malformed: "The body is not a valid request. Look at the sender's version and at proxies in between.",
  too_large: "Lower max_samples_per_send at the sender, or raise the limit that the message names.",
  busy: "The server is at its limit; senders retry. Look at the store's load and at the budgets.",
  body_slow: "The network or the sender is slow (--web.min-body-rate).",
  body_broken: "The connection broke. Look at proxies and their timeouts.",
  denied: "Give the sender a user or token of --web.config.file that has the scope write. Samples of denied requests are lost.",
  failed: "The store failed. The server's log has the reason.",
  no_samples: "The sender sends series without samples. Upgrade it.",
  invalid_histogram: "The native histogram contradicts itself. Upgrade the client library.",
  otlp_untranslatable: "Use cumulative temporality in the OpenTelemetry SDK, or convert delta metrics in the collector.",
  too_many_ha_clusters: "More HA pairs than the server follows. Check the cluster label in ingest.ha.",
};

/** Returns the hint for a reason, or an empty text. */
export function hintFor(reason: string): string {
  return HINTS[reason] ?? "";
}
