/** Teams and rejects: budgets with their usage, and rejected samples by reason. */

import { request } from "../api/client";
import type { Budget, Reject, Team, Teams as TeamsData } from "../api/types";
import { count } from "../parts/format";
import { useLoad } from "../parts/load";
import { Bar, type Column, DataTable } from "../parts/table";
import { dateTime } from "../parts/time";
import { Ago, Figures, Page, PageLink, QueryLink, Section, Show } from "../parts/view";
import { quote, labelName } from "../parts/labels";
import { hintFor } from "./reject_hints";

const POLL_MS = 5000;

export function Teams() {
  const teams = useLoad("teams", async (signal) => (await request<TeamsData>("status/teams", { signal })).data, POLL_MS);
  const rejects = useLoad("rejects", async (signal) => (await request<{ rejects: Reject[] }>("status/rejects", { signal })).data.rejects, POLL_MS);
  return (
    <Page title="Teams and rejects">
      <Section title="Budgets"><Show loaded={teams}>{(data) => <Budgets data={data} />}</Show></Section>
      <Section title="Rejects since startup" note="What was not stored, by reason, with the latest example."><Show loaded={rejects}>{(data) => <Rejects rejects={data} />}</Show></Section>
    </Page>
  );
}

/** The usage of a budget and its maximum, with a bar. */
function Use({ use, maximum, format }: { use: number | null; maximum: number | null; format: (n: number) => string }) {
  const text = `${format(use ?? 0)}${maximum === null ? "" : ` of ${format(maximum)}`}`;
  return maximum === null ? <>{text}</> : <Bar share={(use ?? 0) / maximum}>{text}</Bar>;
}

function Budgets({ data: { teamLabel, all, teams } }: { data: TeamsData }) {
  const budget = (key: keyof Budget, title: string): Column<Team> => ({
    id: key,
    title,
    value: ({ use }) => use[key] ?? 0,
    cell: ({ use, maximum }) => <Use use={use[key]} maximum={maximum[key]} format={count} />,
    isNumber: true,
    isMinor: key !== "activeSeries",
  });
  const columns: Array<Column<Team>> = [
    { id: "team", title: teamLabel ? `Team (${teamLabel})` : "Team", value: ({ team }) => team, cell: ({ team }) => <TeamName team={team} label={teamLabel} />, wraps: true },
    budget("activeSeries", "Active series"),
    { id: "guaranteed", title: "Guaranteed", value: ({ guaranteed }) => guaranteed.activeSeries ?? 0, cell: ({ guaranteed }) => (guaranteed.activeSeries === null ? "–" : count(guaranteed.activeSeries)), isNumber: true, isMinor: true },
    { id: "borrowed", title: "Borrowed", hint: "Active series above the guarantee", value: ({ borrowed }) => borrowed.activeSeries ?? 0, cell: ({ borrowed }) => count(borrowed.activeSeries ?? 0), isNumber: true, isMinor: true },
    budget("newSeriesPerSecond", "New series/s"),
    budget("samplesPerSecond", "Samples/s"),
    { id: "rejected", title: "Rejected", hint: "New series rejected because a budget was exhausted", value: ({ seriesRejected }) => seriesRejected, cell: ({ seriesRejected }) => count(seriesRejected), isNumber: true },
  ];
  const of = (key: keyof Budget) => `${count(all.use[key] ?? 0)}${all.maximum[key] === null ? "" : ` of ${count(all.maximum[key])}`}`;
  return (
    <>
      <Figures items={[["Active series", of("activeSeries")], ["New series/s", of("newSeriesPerSecond")], ["Samples/s", of("samplesPerSecond")], ["Samples since startup", count(all.samples)], ["Series rejected", count(all.seriesRejected)]]} />
      <DataTable id="t" caption="Teams" columns={columns} rows={teams} rowKey={({ team }) => team} text={({ team }) => team} sort="activeSeries" noun="team" empty="No team label is configured (ingest.team_label), and no sender named a team." />
    </>
  );
}

/** Teams that are not values of the team label. */
const SPECIAL_TEAMS = new Map([["", "no team"], ["(rules)", "recording rules"], ["(other)", "all other teams"]]);

function TeamName({ team, label }: { team: string; label: string | null }) {
  const special = SPECIAL_TEAMS.get(team);
  if (special !== undefined) return <span class="muted">{special}</span>;
  if (!label) return <code>{team}</code>;
  return <PageLink page="cardinality" params={{ match: `{${labelName(label)}=${quote(team)}}` }}><code>{team}</code></PageLink>;
}

function Rejects({ rejects }: { rejects: Reject[] }) {
  const columns: Array<Column<Reject>> = [
    { id: "reason", title: "Reason", value: ({ reason }) => reason, cell: (reject) => <Reason reject={reject} />, isName: true },
    { id: "count", title: "Rejected", value: ({ count: n }) => n, cell: ({ count: n }) => count(n), isNumber: true },
    { id: "requests", title: "Requests", value: ({ requests }) => requests, cell: ({ requests }) => count(requests), isNumber: true, isMinor: true },
    { id: "last", title: "Last", value: ({ lastMs }) => lastMs, cell: ({ lastMs }) => <Ago ms={lastMs} />, isNumber: true },
    { id: "sender", title: "Sender", value: ({ sender }) => sender.address, cell: ({ sender }) => [sender.user, sender.address, sender.userAgent].filter(Boolean).join(" · "), isMinor: true, wraps: true },
  ];
  return <DataTable id="r" caption="Rejects" columns={columns} rows={rejects} rowKey={({ reason }) => reason} noun="reason" empty="Nothing was rejected since startup." />;
}

function Reason({ reject: { reason, message, example } }: { reject: Reject }) {
  const sample = example && [example.value !== null && `value ${example.value}`, example.timestampMs !== null && `at ${dateTime(example.timestampMs, true)}`].filter(Boolean).join(" ");
  return (
    <>
      <QueryLink expr={`rate(varve_ingest_rejected_total{reason=${quote(reason)}}[5m])`}><code>{reason}</code></QueryLink> {message}
      <div class="muted">{hintFor(reason)}</div>
      {example && (example.labels || example.text) && <div><code>{example.labels || example.text}</code> <span class="muted">{sample}</span></div>}
    </>
  );
}
