// One host: what it is, what counts against it, who is on it, what its failures cost, and its links.

import { HostActions } from "./actions.js";
import { count, gpuHours, moment, percent, words } from "./format.js";
import { measuresOf } from "./hosts_page.js";
import { IncidentTable } from "./incidents_page.js";
import { Facts, HostState, html, JobLink, JobLinks, Source, Table, useCall, Waiting } from "./ui.js";

const LEMON = { exclJobidCount: "Jobs that excluded it", xidCnt: "Different XIDs", tickets: "Repairs begun", outCount: "Times out of service", multiNodeNodeFails: "Gangs of several hosts stopped", singleNodeNodeFails: "Gangs of it alone stopped" };

export function HostPage({ cluster, name }) {
  const body = { name };
  const state = useCall(cluster, "GetHost", body);
  return html`<h1 tabindex="-1">Host ${name}</h1>
    <${Waiting} state=${state}>${(host) => html`<${Shown} cluster=${cluster} host=${host} />`}<//>
    <${Source} method="GetHost" body=${body} />`;
}

/** What a host is, in facts: shared by its page and the map. */
export function hostFacts(host) {
  const isSpare = host.job && host.job !== "(hidden)" && host.block === undefined;
  return [
    ["State", html`<${HostState} state=${host.state} />`],
    ["Since", moment(host.updateTime)],
    ["Why", [host.reason, host.cordoned && host.cordonReason !== host.reason && `cordoned: ${host.cordonReason}`].filter(Boolean).join("; ")],
    ["Held by", host.parts?.length ? "" : host.job ? html`<${JobLink} name=${host.job} />${isSpare ? " (spare)" : ""}` : "nobody"],
  ];
}

function Shown({ cluster, host }) {
  const { record = {} } = host;
  const incidents = useCall(cluster, "ListIncidents", { pageSize: 1000 });
  const its = (incidents.answer?.incidents ?? []).filter((each) => each.hosts?.includes(host.name));
  const lost = its.reduce((sum, each) => sum + (each.lostGpuHours ?? 0), 0);
  const signals = Object.entries(record.lemonSignals ?? {}).filter(([key, value]) => LEMON[key] && value);
  return html`
    <${Facts} facts=${[
      ...hostFacts(host),
      ["Block", host.block === undefined ? "" : count(host.block)],
      ["GPUs", count(host.gpuCount)],
      ["In", host.domains?.join(", ")],
      ["Failures", count(record.failures)],
      ["They cost", its.length ? gpuHours(lost) : ""],
      ["Reports", count(record.reports)],
      ["Last trouble", moment(record.lastTroubleTime)],
      ["Last stress test", moment(record.lastTestTime)],
      ["It measured", measuresOf(record)],
      ["In service since", moment(record.serviceTime)],
    ]} />
    ${host.parts?.length > 0 && html`<${Table} caption="Jobs that share it" rows=${host.parts} columns=${[
      { title: "Job", of: (part) => html`<${JobLink} name=${part.job} />` },
      { title: "GPUs", of: (part) => (part.gpus ?? []).join(", ") },
    ]} />`}
    <${HostActions} cluster=${cluster} host=${host} />
    <div class="columns"><section><h2>What counts against it ${record.lemon ? "(a lemon)" : ""}</h2>
    <${Table} caption="Signals of the last 28 days" empty="Nothing." rows=${[
      ...signals.map(([key, value]) => [LEMON[key], value]),
      ...Object.entries(record.recent ?? {}).map(([signal, times]) => [`${signal}, today`, times]),
    ]} columns=${[{ title: "Signal", of: ([title]) => title }, { title: "Times", isNumber: true, of: ([, times]) => count(times) }]} />
    <h2>Uplinks above it</h2>
    <${Uplinks} cluster=${cluster} domains=${host.domains ?? []} /></section>
    <section><h2>Its failures</h2>
    <${IncidentTable} incidents=${its} /></section></div>`;
}

function Uplinks({ cluster, domains }) {
  const state = useCall(cluster, "ListLinks", { showAll: true, filter: domains.map((name) => `name = "${name}"`).join(" OR ") });
  return html`<${Waiting} state=${state}>${({ links = [] }) => html`<${Table} caption="Uplinks of its domains" rows=${links} keyOf=${(link) => link.name} empty="It has none." columns=${[
    { title: "Uplink of", of: (link) => link.name },
    { title: "Carries", isNumber: true, of: (link) => percent(link.carriedShare) },
    { title: "Busy", isNumber: true, of: (link) => (link.busyShare ? percent(link.busyShare) : "") },
    { title: "Use", of: (link) => words(link.use, "LINK_USE") },
    { title: "Crossed by", isText: true, of: (link) => html`<${JobLinks} names=${link.crossedBy} />` },
  ]} />`}<//>`;
}
