/** Drop rules for metrics, as `ingest.metric_relabel_configs` has them. */

/** Names in one rule, so that lines stay readable and a rule that is disabled by use concerns few metrics. */
const NAMES_PER_RULE = 20;

/** Returns rules in dry run that drop the metrics. */
export function dropRules(names: string[]): string {
  const sorted = [...names].sort();
  const rules: string[] = [];
  for (let i = 0; i < sorted.length; i += NAMES_PER_RULE) {
    const regex = sorted.slice(i, i + NAMES_PER_RULE).map(escapeRegex).join("|");
    rules.push(
      [
        `- name: unused-${i / NAMES_PER_RULE + 1}`,
        "  action: drop",
        "  source_labels: [__name__]",
        `  regex: ${yamlString(regex)}`,
        "  state: dry_run",
        "  disable_on_use: true",
      ].join("\n"),
    );
  }
  const indented = rules.map((rule) => rule.replace(/^/gm, "  ")).join("\n");
  return `ingest:\n  metric_relabel_configs:${rules.length === 0 ? " []" : `\n${indented}`}\n`;
}

function escapeRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** Quotes a string for YAML: a double-quoted scalar has JSON's escapes. */
function yamlString(text: string): string {
  return JSON.stringify(text);
}
