// The queue: who waits, why, until when, and which jobs would start at once.

import { call } from "./api.js";
import { count, moment, span, seconds, words } from "./format.js";
import { html, JobLink, JobLinks, More, Problem, Source, Table, useCall, useEffect, useState, Waiting } from "./ui.js";

const PAGE = 100;
const LISTS = {
  waiting: { title: "Waiting jobs", states: ["JOB_STATE_QUEUED"], orderBy: "priority desc, create_time" },
  running: { title: "Gangs that hold hosts", states: ["JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"], orderBy: "create_time" },
  ended: { title: "Ended jobs", states: ["JOB_STATE_COMPLETED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"], orderBy: "update_time desc" },
};

export function QueuePage({ cluster }) {
  const [which, setWhich] = useState("waiting");
  return html`
    <h1 tabindex="-1">Queue</h1>
    <fieldset class="choice"><legend>Show</legend>
      ${Object.entries(LISTS).map(([value, { title }]) => html`<label key=${value}><input type="radio" name="which" value=${value} checked=${which === value} onChange=${() => setWhich(value)} /> ${title}</label>`)}
    </fieldset>
    <${Jobs} key=${which} cluster=${cluster} which=${which} />
    <h2>What would start now</h2>
    <${Slots} cluster=${cluster} />
  `;
}

function Jobs({ cluster, which }) {
  const { title, states, orderBy } = LISTS[which];
  const isWaiting = which === "waiting";
  const [pages, setPages] = useState(1);
  const [filter, setFilter] = useState("");
  const [typed, setTyped] = useState("");
  const [explained, setExplained] = useState("");
  const body = {
    states, orderBy, pageSize: PAGE * pages,
    ...(filter && { filter }), ...(isWaiting && { estimateStarts: true }), ...(which === "ended" && { recentOnly: true }),
  };
  const state = useCall(cluster, "ListJobs", body);
  const columns = [
    { title: "Job", of: (job) => html`<${JobLink} name=${job.name} />` },
    { title: "Priority", isNumber: true, of: (job) => count(job.priority) },
    { title: "Size", of: sizeOf },
    isWaiting && { title: "Waits since", of: (job) => moment(job.createTime) },
    isWaiting && { title: "Starts", of: (job) => startOf(job.startEstimate) },
    !isWaiting && { title: "State", of: (job) => words(job.state, "JOB_STATE") },
    !isWaiting && { title: "Since", of: (job) => moment(job.updateTime) },
    !isWaiting && { title: "Attempt", isNumber: true, of: (job) => count(job.attempt) },
    { title: isWaiting ? "Why it waits" : "Remark", isText: true, of: (job) => job.reason ?? "" },
    isWaiting && { title: "What would change it", of: (job) => html`<button type="button" aria-expanded=${explained === job.name} onClick=${() => setExplained(explained === job.name ? "" : job.name)}>Explain<span class="unseen"> ${job.name}</span></button>` },
  ].filter(Boolean);
  return html`
    <form class="search" onSubmit=${(event) => { event.preventDefault(); setFilter(typed.trim()); }}>
      <label for="filter">Filter</label>
      <input id="filter" value=${typed} onInput=${(event) => setTyped(event.target.value)} placeholder='tenant = vision AND priority > 10' autocomplete="off" spellcheck=${false} />
      <button>Apply</button>
    </form>
    <${Waiting} state=${state}>${(answer) => html`
      ${isWaiting && html`<p class="quiet">By priority, then by arrival. Fair shares, limits and reservations can let later ones pass: the start says so.</p>`}
      <${Table} caption=${title} columns=${columns} rows=${answer.jobs ?? []} keyOf=${(job) => job.uid} empty="No job." />
      <${More} token=${answer.nextPageToken && pages < 10} shown=${(answer.jobs ?? []).length} onMore=${() => setPages(pages + 1)} />`}
    <//>
    ${explained && html`<${Explanation} key=${explained} cluster=${cluster} name=${explained} />`}
    <${Source} method="ListJobs" body=${body} />`;
}

function sizeOf(job) {
  const placed = job.placement?.hostCount;
  if (placed) return `${count(placed)} hosts${job.placement.spareCount ? ` + ${count(job.placement.spareCount)} spares` : ""}`;
  const sizes = ["tp", "cp", "ep", "pp"].map((axis) => job.spec?.parallelism?.[axis] ?? 1);
  return `${count(sizes.reduce((product, size) => product * size, job.dp ?? job.spec?.parallelism?.dp ?? 1))} GPUs`;
}

export function startOf(estimate) {
  if (!estimate) return "not estimated";
  if (estimate.startTime) return moment(estimate.startTime);
  if (estimate.notBeforeTime) return `not before ${moment(estimate.notBeforeTime)}`;
  return "not as things are";
}

/** Why a job waits, and what would let it start. */
export function Explanation({ cluster, name }) {
  const body = { name };
  const state = useCall(cluster, "ExplainJob", body);
  /** @type {Record<string, any>} */
  const none = {};
  return html`<section class="card" aria-label=${`Why ${name} waits`}>
    <h2>Why <${JobLink} name=${name} /> waits</h2>
    <${Waiting} state=${state}>${({ reason = none, startEstimate }) => html`
      <p>${reason.sentence || "It does not wait."}</p>
      <ul>
        ${startEstimate && html`<li>Start: ${startOf(startEstimate)}. ${startEstimate.assumption}</li>`}
        ${reason.missingHosts > 0 && html`<li>It needs ${count(reason.neededHosts)} hosts; ${count(reason.freeHosts)} are free, and ${count(reason.missingHosts)} are missing.</li>`}
        ${reason.passingTimeLimit && html`<li>With a time limit of ${span(seconds(reason.passingTimeLimit))} or less it would start now, ahead of the queue.</li>`}
        ${reason.preempts?.length > 0 && html`<li>When it starts it preempts <${JobLinks} names=${reason.preempts} />.</li>`}
        ${reason.reservedIn?.length > 0 && html`<li>Hosts are reserved for it in ${reason.reservedIn.join(", ")}.</li>`}
        ${reason.waitsFor?.length > 0 && html`<li>Before it end or start: <${JobLinks} names=${reason.waitsFor} />.</li>`}
      </ul>
      <${Table} caption="What stands in its way" rows=${reason.obstacles ?? []} empty="Nothing stands in its way." columns=${[
        { title: "What", of: (each) => words(each.kind, "OBSTACLE_KIND") },
        { title: "Which", of: (each) => html`<${JobLink} name=${each.name} />` },
        { title: "Hosts", isNumber: true, of: (each) => count(each.hosts) },
        { title: "Until", of: (each) => `${moment(each.clearTime)}${each.basis ? ` (${words(each.basis, "END_BASIS")})` : ""}` },
      ]} />`}
    <//>
    <${Source} method="ExplainJob" body=${body} />
  </section>`;
}

function Slots({ cluster }) {
  const [tenants, setTenants] = useState([]);
  const [tenant, setTenant] = useState("");
  const [error, setError] = useState(null);
  useEffect(() => {
    const ending = new AbortController();
    call("ListTenants", {}, ending.signal).then(
      (answer) => setTenants((answer.tenants ?? []).map(({ name }) => name)),
      (problem) => ending.signal.aborted || setError(problem),
    );
    return () => ending.abort();
  }, []);
  const body = tenant ? { tenant } : {};
  const state = useCall(cluster, "ListSlots", body);
  return html`
    <${Problem} error=${error} />
    ${tenants.length > 1 && html`<p><label for="slots-of">Jobs of</label> <select id="slots-of" value=${tenant} onChange=${(event) => setTenant(event.target.value)}>
      <option value="">the usual tenant</option>${tenants.map((name) => html`<option key=${name}>${name}</option>`)}</select></p>`}
    <${Waiting} state=${state}>${(answer) => html`
      <p>The largest job of ${answer.tenant} that would start now has ${count(answer.largestGpus)} GPUs. ${count(answer.freeHosts)} hosts are free behind all that can start, ${count(answer.usableHosts)} of them not kept for other tenants.</p>
      <${Table} caption="Jobs that would start, one after the other, behind all that wait" rows=${answer.slots ?? []} columns=${[
        { title: "GPUs a job", isNumber: true, of: (slot) => count(slot.gpus) },
        { title: "Hosts", isNumber: true, of: (slot) => count(slot.hosts) },
        { title: "Jobs in all", isNumber: true, of: (slot) => count(slot.inAll) },
        { title: "Each inside one domain", isNumber: true, of: (slot) => count(slot.inside) },
      ]} />
      <${Table} caption="Free hosts of each domain" rows=${answer.domains ?? []} keyOf=${(each) => each.domain} columns=${[
        { title: "Domain", of: (each) => each.domain },
        { title: "Free hosts", isNumber: true, of: (each) => count(each.freeHosts) },
        { title: "Not kept for others", isNumber: true, of: (each) => count(each.usableHosts) },
        ...(answer.slots ?? []).map((slot, at) => ({ title: `Jobs of ${count(slot.gpus)} GPUs`, isNumber: true, of: (each) => count(each.slots?.[at]) })),
      ]} />`}
    <//>
    <${Source} method="ListSlots" body=${body} />`;
}
