/** Says which rule files of the training pack are missing, record nothing, or fail. */

import type { ComponentChildren } from "preact";
import { plural } from "../../parts/format";
import { type Loaded, useLoad } from "../../parts/load";
import { ErrorBox, PageLink } from "../../parts/view";
import { DOCS, type LoadedRuleState, RULE_FILES, type RuleFile, loadRuleState, silenceOf } from "./records";

const POLL_MS = 60_000;
/** Failing rules that are listed. The page of rules has the others. */
const FAILING_SHOWN = 3;

/** Loads the state of the rules. */
export function useRuleState(): Loaded<LoadedRuleState> {
  return useLoad("training rules", loadRuleState, POLL_MS);
}

/** What stands in place of content if no rule of the pack is loaded, and nothing is recorded. */
export function NoRules() {
  return (
    <div class="card section">
      <p>
        This page shows training jobs with their GPUs and nodes. It reads what the rules of <code>docs/mixin/training</code> record, and there are no such records. List the rule files under <code>rule_files</code> in the configuration, then reload it. <Docs />
      </p>
      <FileList files={RULE_FILES} />
    </div>
  );
}

export function RuleNotice({ loaded: { data, error, reload } }: { loaded: Loaded<LoadedRuleState> }) {
  if (error !== undefined) return <ErrorBox error={error} onRetry={reload} />;
  if (!data || data.isAbsent) return null;
  const { missing, silent, failing, loadedS } = data;
  return (
    <>
      {missing.length > 0 && <Notice title="Rule files of the training pack are missing." files={missing} />}
      {silent.length > 0 && <Notice title={silenceOf(loadedS)} files={silent} />}
      {failing.length > 0 && (
        <div class="message error" role="status">
          <div>
            {plural(failing.length, "rule")} of the training pack {failing.length === 1 ? "fails" : "fail"}, so what this page shows may be old or incomplete.
            <ul class="plain">
              {failing.slice(0, FAILING_SHOWN).map(({ group, rule, error: text }) => (
                <li key={group + rule}><PageLink page="rules" params={{ find: rule }}>{rule}</PageLink> <span class="muted">in {group}: {text}</span></li>
              ))}
            </ul>
            {failing.length > FAILING_SHOWN && <PageLink page="rules" params={{ state: "err" }}>All failing rules</PageLink>}
          </div>
        </div>
      )}
    </>
  );
}

function Notice({ title, files }: { title: string; files: RuleFile[] }) {
  return (
    <div class="message warning" role="status">
      <div>{title} <Docs /><FileList files={files} /></div>
    </div>
  );
}

function FileList({ files }: { files: readonly RuleFile[] }): ComponentChildren {
  return <ul class="plain">{files.map(({ name, purpose }) => <li key={name}><code>{name}</code> <span class="muted">{purpose}</span></li>)}</ul>;
}

function Docs() {
  return <span>See <code>{DOCS}</code>.</span>;
}
