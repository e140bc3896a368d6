/** Training jobs: the list, one job, and the nodes that fail again and again. The address says which of them. */

import { useEffect } from "preact/hooks";
import { hasJobs } from "../../app/has_jobs";
import { useAddress } from "../../app/router";
import { Page, PageLink } from "../../parts/view";
import { JobPage } from "./job";
import { JobList } from "./list";
import { Nodes } from "./nodes";
import { NoRules, RuleNotice, useRuleState } from "./rule_notice";

export function Jobs() {
  const { params } = useAddress();
  const job = params.get("job") ?? "";
  const isNodes = params.get("view") === "nodes";
  const rules = useRuleState();
  const isAbsent = rules.data?.isAbsent === true;
  useEffect(() => {
    if (rules.data) hasJobs.set(!isAbsent);
  }, [rules.data, isAbsent]);
  if (job !== "") return <JobPage key={job} id={job} rules={rules} />;
  return (
    <Page
      title="Jobs"
      controls={
        <nav class="tabs" aria-label="Views">
          <PageLink page="jobs" isCurrent={!isNodes}>Jobs</PageLink>
          <PageLink page="jobs" params={{ view: "nodes" }} isCurrent={isNodes}>Nodes</PageLink>
        </nav>
      }
      about={isNodes ? "Nodes whose alerts, failed pods and slow ranks add up, over 30 days. One point is an alert, a failed pod, or an hour in which a rank of the node was slow." : "Training jobs now, those that need attention first. Utilization is the share of the GPUs that compute."}
    >
      <RuleNotice loaded={rules} />
      {isAbsent ? <NoRules /> : isNodes ? <Nodes /> : <JobList />}
    </Page>
  );
}
