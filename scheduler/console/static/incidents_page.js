// Incidents: each failure as one thing, from the host that failed to the next step, and what it cost.

import { count, counted, gpuHours, jobName, moment, percent, seconds, span, words } from "./format.js";
import { Badge, Facts, HostLink, HostLinks, html, JobLink, More, Source, Table, useCall, useState, Waiting } from "./ui.js";

const PAGE = 100;

export function IncidentsPage({ cluster }) {
  const [pages, setPages] = useState(1);
  const body = { pageSize: PAGE * pages };
  const state = useCall(cluster, "ListIncidents", body);
  return html`<h1 tabindex="-1">Incidents</h1>
    <${Waiting} state=${state}>${(answer) => html`<div class="columns main-first"><section class="aside">
      <${Table} caption="By week, from Monday, UTC" rows=${answer.weeks ?? []} keyOf=${(week) => week.startTime} empty=${`Nothing has failed since ${moment(answer.startTime)}.`} columns=${[
        { title: "Week of", of: (week) => week.startTime.slice(0, 10) },
        { title: "Failures", isNumber: true, of: (week) => count(week.incidents) },
        { title: "Gangs stopped", isNumber: true, of: (week) => count(week.stoppedGangs) },
        { title: "Lost", isNumber: true, of: (week) => gpuHours(week.lostGpuHours) },
        { title: "Longest stop", isNumber: true, of: (week) => (week.longestStop ? span(seconds(week.longestStop)) : "") },
      ]} />
      </section><section><${IncidentTable} incidents=${answer.incidents ?? []} />
      <${More} token=${answer.nextPageToken && pages < 10} shown=${(answer.incidents ?? []).length} onMore=${() => setPages(pages + 1)} /></section></div>`}
    <//>
    <${Source} method="ListIncidents" body=${body} />`;
}

export function incidentHref({ version }) {
  return `#/incident/${version}`;
}

/** From the failure to the next step, as text. */
function stoodOf(incident) {
  if (!incident.job) return "";
  if (!incident.stepTime) return "still";
  const stood = (Date.parse(incident.stepTime) - Date.parse(incident.time)) / 1000;
  return Date.parse(incident.stepTime) > Date.now() ? `${span(stood)}, expected` : span(stood);
}

function outcomeOf(incident) {
  if (!incident.job) return html`<${Badge} kind="quiet">no gang stopped<//>`;
  const kind = { INCIDENT_OUTCOME_OPEN: "bad", INCIDENT_OUTCOME_REQUEUED: "warn", INCIDENT_OUTCOME_ENDED: "warn" }[incident.outcome] ?? "good";
  return html`<${Badge} kind=${kind}>${words(incident.outcome, "INCIDENT_OUTCOME")}<//>`;
}

export function IncidentTable({ incidents }) {
  return html`<${Table} caption="Failures and what came of them, newest first" rows=${incidents} keyOf=${(each) => each.version} empty="Nothing has failed lately." columns=${[
    { title: "When", isTime: true, of: (each) => html`<a href=${incidentHref(each)}>${moment(each.time)}</a>` },
    { title: "Failed", of: (each) => html`<${HostLinks} names=${each.hosts} />` },
    { title: "Reason", isText: true, of: (each) => each.detail },
    { title: "Gang", of: (each) => html`<${JobLink} name=${each.job} />` },
    { title: "GPUs", isNumber: true, of: (each) => (each.gpus ? count(each.gpus) : "") },
    { title: "Went on", of: outcomeOf },
    { title: "Stood", isNumber: true, of: stoodOf },
    { title: "Lost", isNumber: true, of: (each) => (each.job ? `${each.measured ? "" : "~ "}${gpuHours(each.lostGpuHours)}` : "") },
  ]} />`;
}

export function IncidentPage({ cluster, version }) {
  const body = { pageSize: 1000 };
  const state = useCall(cluster, "ListIncidents", body);
  return html`<h1 tabindex="-1">Incident ${version}</h1>
    <${Waiting} state=${state}>${(answer) => {
      const incident = (answer.incidents ?? []).find((each) => String(each.version) === version);
      return incident ? html`<${Shown} cluster=${cluster} incident=${incident} />` : html`<p class="problem">The log of the last four weeks has no such incident.</p>`;
    }}<//>
    <${Source} method="ListIncidents" body=${body} />`;
}

function Shown({ cluster, incident }) {
  const steps = [
    [incident.time, html`<${HostLinks} names=${incident.hosts} /> failed: ${incident.detail}`],
    incident.gpus && [incident.time, html`<${JobLink} name=${incident.job} /> stopped: ${counted(incident.gpus, "GPU")} stand still`],
    incident.outcomeTime && [incident.outcomeTime, html`${outcomeOf(incident)} ${incident.outcomeDetail}`],
    incident.stepTime && [incident.stepTime, Date.parse(incident.stepTime) > Date.now() ? "Steps again, by the usual restart" : "Steps again"],
  ].filter(Boolean);
  const begin = Date.parse(incident.time);
  return html`
    <${Facts} facts=${[
      ["Lost", incident.job ? html`<strong>${gpuHours(incident.lostGpuHours)}</strong>` : "no gang stopped"],
      ["Counted by", incident.job && (incident.measured ? "checkpoints that its ranks reported" : "the usual interval of checkpoints: its ranks report none")],
      ["Stood", stoodOf(incident)],
      ["GPUs", incident.gpus ? count(incident.gpus) : ""],
    ]} />
    <ol class="steps">${steps.map(([at, what], place) => html`<li key=${place}><span class="quiet">${place ? `+ ${span((Date.parse(at) - begin) / 1000)}` : moment(at)}</span> <span>${what}</span></li>`)}</ol>
    ${incident.job && html`<${Ways} cluster=${cluster} name=${incident.job} />`}`;
}

/** What was weighed at the last restart of the job. */
function Ways({ cluster, name }) {
  const { answer } = useCall(cluster, "GetJob", { name });
  const options = answer?.restartOptions ?? [];
  return options.length > 0 && html`<h2>What was weighed at its last restart</h2><${Ladder} caption="Ways to go on after the last failure" options=${options} />`;
}

export function Ladder({ caption, options }) {
  return html`<${Table} caption=${caption} rows=${options} keyOf=${(each) => each.option} columns=${[
    { title: "Way", of: (each) => words(each.option, "RESTART_OPTION") },
    { title: "Taken", of: (each) => html`<${Badge} kind=${each.taken ? "good" : "quiet"}>${each.taken ? "taken" : each.possible ? "possible" : "impossible"}<//>` },
    { title: "Price", isNumber: true, of: (each) => (each.possible ? gpuHours(each.gpuHours) : "") },
    { title: "Steps longer by", isNumber: true, of: (each) => (each.slower === undefined ? "" : percent(each.slower)) },
    { title: "Blocks that move", isNumber: true, of: (each) => (each.possible ? count(each.movedBlocks) : "") },
    { title: "Remark", isText: true, of: (each) => each.note ?? "" },
  ]} />`;
}
