// Hosts and links: what is out of service or counts against one, and what is planned.

import { count, counted, moment, percent, words } from "./format.js";
import { BulkActions, HostActions, may, NewWindow, WindowActions } from "./actions.js";
import { useParam } from "./route.js";
import { HostLink, HostState, html, JobLink, JobLinks, More, Source, Table, useCall, useCluster, useState, Waiting } from "./ui.js";

const PAGE = 100;
const STATES = ["NEW", "BURN_IN", "HEALTHY", "GOLDEN", "SUSPECT", "RETIRING", "CORDONED", "DRAINING", "FAILED", "IN_REPAIR", "RMA", "UNKNOWN"];
const WORST_FIRST = ["FAILED", "RMA", "IN_REPAIR", "RETIRING", "SUSPECT", "DRAINING", "CORDONED", "UNKNOWN", "BURN_IN", "NEW", "HEALTHY", "GOLDEN"];
const NOTED = STATES.filter((state) => !["HEALTHY", "GOLDEN"].includes(state));

export function HostsPage({ cluster }) {
  useCluster(cluster); // who calls may come after the hosts
  return html`<h1 tabindex="-1">Hosts and links</h1>
    <div class="columns broad">
      <section><${Hosts} cluster=${cluster} /></section>
      <section><h2>Links</h2><${Links} cluster=${cluster} /><h2>Windows</h2><${Windows} cluster=${cluster} /></section>
    </div>`;
}

function Hosts({ cluster }) {
  const [which, setWhich] = useParam("state", "noted");
  const [filter, setFilter] = useParam("filter");
  const [pages, setPages] = useState(1);
  const [chosen, setChosen] = useState(new Set());
  const states = which === "noted" ? NOTED : which === "all" ? [] : [which];
  const body = { pageSize: PAGE * pages, states: states.map((state) => `HOST_STATE_${state}`), ...(filter && { filter }) };
  const state = useCall(cluster, "ListHosts", body);
  const mayAct = may(cluster, "operator");
  const choose = (name, isChosen) => {
    const next = new Set(chosen);
    if (isChosen) next.add(name);
    else next.delete(name);
    setChosen(next);
  };
  return html`
    <form class="search" onSubmit=${(event) => { event.preventDefault(); setFilter(event.target.elements.filter.value.trim()); setPages(1); }}>
      <label for="state">State</label>
      <select id="state" value=${which} onChange=${(event) => { setWhich(event.target.value); setPages(1); }}>
        <option value="noted">all but healthy and golden</option><option value="all">all</option>
        ${STATES.map((each) => html`<option key=${each} value=${each}>${words(`X_${each}`, "X")}</option>`)}
      </select>
      <label for="filter">Filter</label>
      <input id="filter" name="filter" key=${filter} defaultValue=${filter} placeholder="domains:z0-r012" autocomplete="off" spellcheck=${false} />
      <button>Apply</button>
    </form>
    <${Waiting} state=${state}>${(answer) => {
      const hosts = [...(answer.hosts ?? [])].sort((a, b) => severity(a) - severity(b)); // what has failed first
      const picked = hosts.filter(({ name }) => chosen.has(name));
      return html`
      ${picked.length > 0 && html`<div class="toolbar"><strong>${counted(picked.length, "host")} chosen</strong><${BulkActions} cluster=${cluster} hosts=${picked} onDone=${() => setChosen(new Set())} /></div>`}
      <${Table} caption="Hosts" rows=${hosts} keyOf=${(host) => host.name} empty="No host." columns=${[
        { title: "Host", of: (host) => html`<${HostLink} name=${host.name} />`, by: (host) => host.name },
        mayAct && { title: "Choose", of: (host) => html`<input type="checkbox" aria-label=${`Choose ${host.name}`} checked=${chosen.has(host.name)} onChange=${(event) => choose(host.name, event.target.checked)} />` },
        { title: "State", of: (host) => html`<${HostState} state=${host.state} />`, by: severity },
        { title: "Since", isTime: true, of: (host) => moment(host.updateTime), by: (host) => host.updateTime ?? "" },
        { title: "Why", isText: true, of: (host) => [host.reason, host.cordoned && host.cordonReason !== host.reason && `cordoned: ${host.cordonReason}`].filter(Boolean).join("; "), by: (host) => host.reason },
        { title: "Job", of: (host) => html`<${JobLink} name=${host.job} />${host.job && host.job !== "(hidden)" && host.block === undefined ? " (spare)" : ""}`, by: (host) => host.job },
        { title: "Failures", isNumber: true, of: (host) => count(host.record?.failures), by: (host) => Number(host.record?.failures ?? 0) },
        { title: "Reports", isNumber: true, of: (host) => count(host.record?.reports), by: (host) => Number(host.record?.reports ?? 0) },
        hosts.some((host) => host.record?.measures) && { title: "Burn-in", isText: true, of: (host) => measuresOf(host.record) },
        { title: "Counts against it", isText: true, of: (host) => troubleOf(host.record) },
        mayAct && { title: "Change", of: (host) => html`<${HostActions} cluster=${cluster} host=${host} isShort=${true} />` },
      ].filter(Boolean)} />
      <${More} token=${answer.nextPageToken && pages < 10} shown=${hosts.length} onMore=${() => setPages(pages + 1)} />`;
    }}<//>
    <${Source} method="ListHosts" body=${body} />`;
}

/** Its place among the states: what is broken comes first. */
function severity(host) {
  return WORST_FIRST.indexOf((host.state ?? "").replace("HOST_STATE_", ""));
}

/** What its stress tests measured. */
export function measuresOf(record = {}) {
  const measures = Object.entries(record.measures ?? {}).map(([name, value]) => `${name} ${Number(value).toPrecision(4)}`);
  return measures.length ? `${measures.join(", ")} (${moment(record.measureTime)})` : "";
}

function troubleOf(record = {}) {
  const recent = Object.entries(record.recent ?? {}).map(([signal, times]) => `${signal} ${count(times)} today`);
  return [record.lemon && "a lemon", record.slow && "slower than others", ...(record.overThreshold ?? []).map((name) => `${name} over its threshold`), ...recent].filter(Boolean).join("; ");
}

function Links({ cluster }) {
  const [isAll, setIsAll] = useState(false);
  const body = { showAll: isAll };
  const state = useCall(cluster, "ListLinks", body);
  return html`
    <p><label><input type="checkbox" checked=${isAll} onChange=${(event) => setIsAll(event.target.checked)} /> also those that are up and open</label></p>
    <${Waiting} state=${state}>${(answer) => html`<${Table} caption="Uplinks of domains" rows=${answer.links ?? []} keyOf=${(link) => link.name} empty="All uplinks are up and open." columns=${[
      { title: "Uplink of", of: (link) => link.name },
      { title: "Tier", of: (link) => link.tier },
      { title: "Carries", isNumber: true, of: (link) => percent(link.carriedShare) },
      { title: "Busy", isNumber: true, of: (link) => (link.busyShare ? percent(link.busyShare) : "") },
      { title: "Built for", isNumber: true, of: (link) => `${count(Math.round(link.builtGbps ?? 0))} Gbit/s` },
      { title: "Reported", of: (link) => (link.reportTime ? `${percent(link.share)}, ${moment(link.reportTime)}` : "") },
      { title: "Use", of: (link) => words(link.use, "LINK_USE") },
      { title: "Why", isText: true, of: (link) => [link.detail, link.reason].filter(Boolean).join("; ") },
      { title: "Windows", of: (link) => (link.windows ?? []).join(", ") },
      { title: "Crossed by", isText: true, of: (link) => html`<${JobLinks} names=${link.crossedBy} />` },
    ]} />`}<//>
    <${Source} method="ListLinks" body=${body} />`;
}

function Windows({ cluster }) {
  const body = { pageSize: 1000, orderBy: "start_time" };
  const state = useCall(cluster, "ListWindows", body);
  return html`<${Waiting} state=${state}>${(answer) => html`<${Table} caption="Maintenance and reservations that are not over" rows=${answer.windows ?? []} keyOf=${(each) => each.name} empty="Nothing is planned." columns=${[
      { title: "Window", of: (each) => each.name },
      { title: "Kind", of: (each) => words(each.kind, "WINDOW_KIND") },
      { title: "State", of: (each) => words(each.state, "WINDOW_STATE") },
      { title: "From", isTime: true, of: (each) => moment(each.startTime) },
      { title: "To", isTime: true, of: (each) => moment(each.endTime) },
      { title: "Hosts", isNumber: true, of: (each) => count(each.chosenHosts?.length || each.hostCount || each.hosts?.length) },
      { title: "For", of: (each) => [each.tenant, ...(each.jobs ?? [])].filter(Boolean).join(", ") },
      { title: "Why", isText: true, of: (each) => each.reason ?? "" },
      may(cluster, "operator") && { title: "Change", of: (each) => html`<${WindowActions} cluster=${cluster} planned=${each} />` },
    ].filter(Boolean)} />`}<//>
    <${NewWindow} cluster=${cluster} />
    <${Source} method="ListWindows" body=${body} />`;
}
