/** The relabel rules in force with their counters, and a test of rules on a series. */

import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { RelabelRule, RelabelTest } from "../api/types";
import { ConfirmButton } from "../parts/confirm";
import { count, short } from "../parts/format";
import { printLabels } from "../parts/labels";
import { useLoad } from "../parts/load";
import { type Column, DataTable } from "../parts/table";
import { Ago, ErrorBox, Section, Show } from "../parts/view";

const POLL_MS = 10_000;

export function RelabelRules() {
  const loaded = useLoad("relabel", async (signal) => (await request<{ rules: RelabelRule[] }>("status/relabel", { signal })).data.rules, POLL_MS);
  const columns: Array<Column<RelabelRule>> = [
    { id: "name", title: "Rule", value: ({ name }) => name, cell: ({ name }) => <code>{name}</code>, isName: true },
    { id: "state", title: "State", value: ({ state }) => state, cell: (rule) => <State rule={rule} onChange={loaded.reload} />, wraps: true },
    { id: "series", title: "Series", hint: "Label sets that the rule dropped or changed, or would have", value: ({ series }) => series, cell: ({ series }) => count(series), isNumber: true },
    { id: "samples", title: "Samples", value: ({ samples }) => samples, cell: ({ samples }) => count(samples), isNumber: true, isMinor: true },
    { id: "rate", title: "Samples/s", value: ({ samplesPerSecond }) => samplesPerSecond, cell: ({ samplesPerSecond }) => short(samplesPerSecond), isNumber: true, isMinor: true },
  ];
  return (
    <>
      <Section title="Relabel rules" note="Counters since the rules were loaded.">
        <Show loaded={loaded}>
          {(rules) => <DataTable id="r" caption="Relabel rules" columns={columns} rows={rules} rowKey={({ name }) => name} noun="rule" empty="No relabel rules are configured (ingest.metric_relabel_configs, ingest.relabel_files)." />}
        </Show>
      </Section>
      <Test />
    </>
  );
}

function State({ rule: { name, state, disableOnUse, disabledByUse, wouldBeDisabledBy }, onChange }: { rule: RelabelRule; onChange: () => void }) {
  const used = disabledByUse ?? wouldBeDisabledBy;
  const enable = () => request("admin/relabel/enable", { method: "POST", params: { name } });
  return (
    <>
      <span class={state === "enforce" ? "tag good" : "tag"}>{state === "enforce" ? "enforced" : "dry run"}</span>
      {disableOnUse && <span class="tag">disables on use</span>}
      {used && (
        <div class="muted">
          {disabledByUse ? "Disabled" : "Would have been disabled"} <Ago ms={used.atMs} /> by {used.who.startsWith("Mozilla/") ? "a browser" : used.who || "a query"}: <code>{used.selector}</code>{" "}
          <ConfirmButton
            title={disabledByUse ? "Enable" : "Forget the use"}
            question={disabledByUse ? `Enable the rule ${name}? It drops new samples again, although a query used them. The server logs who enabled it.` : `Forget the query that would have disabled the rule ${name}?`}
            act={enable}
            onDone={onChange}
          />
        </div>
      )}
    </>
  );
}

/** Shows what the rules in force, or other rules, do to a series. */
function Test() {
  const [series, setSeries] = useState("");
  const [rules, setRules] = useState("");
  const [outcome, setOutcome] = useState<RelabelTest>();
  const [error, setError] = useState<unknown>();
  const run = (event: Event) => {
    event.preventDefault();
    request<RelabelTest>("status/relabel/test", { method: "POST", params: { series, rules } }).then(
      ({ data }) => (setOutcome(data), setError(undefined)),
      (reason: unknown) => (setOutcome(undefined), setError(reason)),
    );
  };
  return (
    <Section title="Test of rules" note="The effect of rules on a series, step by step. Nothing is stored, counted or disabled.">
      <form class="card test" onSubmit={run}>
        <label class="field column">
          <span>Series</span>
          <input type="text" class="code" placeholder='up{job="node", instance="a:9100"}' spellcheck={false} autocomplete="off" required value={series} onInput={(event) => setSeries(event.currentTarget.value)} />
        </label>
        <label class="field column">
          <span>Rules in YAML; empty for the rules in force</span>
          <textarea class="code" rows={4} spellcheck={false} placeholder={"- action: drop\n  source_labels: [__name__]\n  regex: go_.*"} value={rules} onInput={(event) => setRules(event.currentTarget.value)} />
        </label>
        <div><button type="submit" class="primary" disabled={series.trim() === ""}>Test</button></div>
        {error !== undefined && <ErrorBox error={error} />}
        {outcome && <Outcome outcome={outcome} />}
      </form>
    </Section>
  );
}

function Outcome({ outcome: { steps, result, error } }: { outcome: RelabelTest }) {
  return (
    <div role="status">
      {steps.length === 0 && <p>No rule has an effect on this series.</p>}
      <ol class="steps">
        {steps.map(({ name, state, drops, set, deleted }) => (
          <li key={name}>
            <code>{name}</code> {state === "dry_run" ? "would " : ""}
            {drops ? (state === "dry_run" ? "drop the series" : "drops the series") : null}
            {Object.keys(set).length > 0 && <>{state === "dry_run" ? "set" : "sets"} <code>{printLabels(set)}</code> </>}
            {deleted.length > 0 && <>{state === "dry_run" ? "delete" : "deletes"} <code>{deleted.join(", ")}</code></>}
            {state === "dry_run" && <span class="tag">dry run</span>}
          </li>
        ))}
      </ol>
      {error !== "" ? <p class="message error">The result is not a valid series: {error}</p> : <p>{result ? <>Stored as <code>{printLabels(result)}</code></> : <b>The series is dropped.</b>}</p>}
    </div>
  );
}
