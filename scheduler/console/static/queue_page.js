// The queue: who waits, why, until when, and which jobs would start at once.

import { call } from "./api.js";
import { ticks, useWidth } from "./chart.js";
import { clockText, count, counted, jobName, moment, percent, span, seconds, words } from "./format.js";
import { shapesOf } from "./geometry.js";
import { useParam } from "./route.js";
import { Badge, HostLinks, html, JobLink, JobLinks, More, Problem, Source, Table, useCall, useEffect, useRef, useState, Waiting } from "./ui.js";

const PAGE = 100;
const LISTS = {
  waiting: { title: "Waiting jobs", states: ["JOB_STATE_QUEUED"], orderBy: "priority desc, create_time" },
  running: { title: "Gangs that hold hosts", states: ["JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"], orderBy: "create_time" },
  ended: { title: "Ended jobs", states: ["JOB_STATE_COMPLETED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"], orderBy: "update_time desc" },
};

const KINDS = { JOB_STATE_RUNNING: "good", JOB_STATE_COMPLETED: "good", JOB_STATE_INTERRUPTED: "bad", JOB_STATE_FAILED: "bad" };
const DAY_S = 86_400;

export function QueuePage({ cluster }) {
  const [which, setWhich] = useParam("show", "waiting");
  const list = LISTS[which] ? which : "waiting";
  return html`
    <h1 tabindex="-1">Queue</h1>
    <fieldset class="choice"><legend>Show</legend>
      ${Object.entries(LISTS).map(([value, { title }]) => html`<label key=${value}><input type="radio" name="which" value=${value} checked=${list === value} onChange=${() => setWhich(value)} /> ${title}</label>`)}
    </fieldset>
    <div class="columns main-first">
      <section><${Jobs} key=${list} cluster=${cluster} which=${list} /></section>
      <section class="aside"><h2>What would start now</h2><${Slots} cluster=${cluster} /></section>
    </div>
  `;
}

function Jobs({ cluster, which }) {
  const { title, states, orderBy } = LISTS[which];
  const [isWaiting, isRunning] = [which === "waiting", which === "running"];
  const [pages, setPages] = useState(1);
  const [filter, setFilter] = useParam("filter");
  const [explained, setExplained] = useParam("job");
  const body = {
    states, orderBy, pageSize: PAGE * pages,
    ...(filter && { filter }), ...(isWaiting && { estimateStarts: true }), ...(which === "ended" && { recentOnly: true }),
  };
  const state = useCall(cluster, "ListJobs", body, isWaiting ? isForecastPartial : undefined);
  const columnsOf = (jobs) => [
    { title: "Job", of: (job) => html`<${JobLink} name=${job.name} />`, by: (job) => job.name },
    { title: "Priority", isNumber: true, of: (job) => count(job.priority), by: (job) => job.priority ?? 0 },
    { title: "Size", of: sizeOf, by: gpusOf },
    isWaiting && { title: "Waits since", isTime: true, of: (job) => moment(job.createTime), by: (job) => job.createTime },
    isWaiting && { title: "Starts", isTime: true, of: (job) => startOf(job.startEstimate), by: (job) => job.startEstimate?.startTime ?? "9" },
    !isWaiting && { title: "State", of: (job) => html`<${Badge} kind=${KINDS[job.state] ?? "quiet"}>${words(job.state, "JOB_STATE")}<//>`, by: (job) => job.state },
    !isWaiting && { title: "Since", isTime: true, of: (job) => moment(job.updateTime), by: (job) => job.updateTime },
    !isWaiting && { title: "Attempt", isNumber: true, of: (job) => count(job.attempt), by: (job) => job.attempt ?? 0 },
    isRunning && jobs.some((job) => job.progress?.stepTime) && { title: "Step, measured", isNumber: true, of: (job) => (job.progress?.stepTime ? span(seconds(job.progress.stepTime)) : ""), by: (job) => seconds(job.progress?.stepTime) },
    isRunning && { title: "Step, modelled", isNumber: true, of: modelledStep, by: (job) => seconds(job.placement?.stepTime) },
    isRunning && jobs.some(slowTextOf) && { title: "Slower by", isNumber: true, of: slowTextOf, by: (job) => slownessOf(job)[0] },
    isRunning && jobs.some((job) => job.stragglerHosts?.length) && { title: "Straggler", of: (job) => html`<${HostLinks} names=${job.stragglerHosts} />`, by: (job) => -(job.stragglerHosts?.length ?? 0) },
    isRunning && jobs.some((job) => job.slowdown) && { title: "Degraded link", of: (job) => (job.slowdown?.links ?? []).join(", "), by: (job) => (job.slowdown?.links ?? []).join() || "~" },
    jobs.some((job) => labelsOf(job)) && { title: "Labels", isText: true, of: labelsOf },
    { title: isWaiting ? "Why it waits" : "Remark", isText: true, of: (job) => [isRunning && slownessOf(job)[1], job.reason].filter(Boolean).join("; ") },
    isWaiting && { title: "What would change it", of: (job) => html`<button type="button" aria-expanded=${explained === jobName(job.name)} onClick=${() => setExplained(explained === jobName(job.name) ? "" : jobName(job.name))}>Explain<span class="unseen"> ${job.name}</span></button>` },
  ].filter(Boolean);
  return html`
    <form class="search" onSubmit=${(event) => { event.preventDefault(); setFilter(event.target.elements.filter.value.trim()); }}>
      <label for="filter">Filter</label>
      <input id="filter" name="filter" key=${filter} defaultValue=${filter} placeholder='tenant = vision AND priority > 10' autocomplete="off" spellcheck=${false} />
      <button>Apply</button>
    </form>
    <${Waiting} state=${state}>${({ jobs = [], nextPageToken }) => html`
      ${isWaiting && html`<p class="quiet">By priority, then by arrival. Fair shares, limits and reservations can let later ones pass: the start says so.</p>
        <${Gantt} jobs=${jobs} />`}
      <${Table} caption=${title} columns=${columnsOf(jobs)} rows=${isRunning ? slowestFirst(jobs) : jobs} keyOf=${(job) => job.uid} empty="No job."
        below=${(job) => isWaiting && explained === jobName(job.name) && html`<${Explanation} cluster=${cluster} name=${job.name} />`} />
      <${More} token=${nextPageToken && pages < 10} shown=${jobs.length} onMore=${() => setPages(pages + 1)} />`}
    <//>
    <${Source} method="ListJobs" body=${body} />`;
}

/** Whether the forecast of starts has not come to all who wait. */
export function isForecastPartial({ jobs = [] }) {
  return jobs.some(({ startEstimate }) => !startEstimate || startEstimate.notBeforeTime);
}

function labelsOf(job) {
  return Object.entries(job.spec?.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ");
}

/** Those with a straggler first, then by how much slower each is than it could be. */
export function slowestFirst(jobs) {
  const lagging = (job) => (job.stragglerHosts?.length ? 1 : 0);
  return [...jobs].sort((a, b) => lagging(b) - lagging(a) || slownessOf(b)[0] - slownessOf(a)[0]);
}

function slowTextOf(job) {
  const [share] = slownessOf(job);
  return share === Infinity ? "stands still" : share >= 5e-4 ? percent(share) : "";
}

function modelledStep({ placement, progress }) {
  const step = progress?.modelStepTime ?? placement?.stepTime;
  return step ? span(seconds(step)) : "";
}

/** How much slower than it could be: [share, why], by what was measured, its links, or its bound. */
export function slownessOf({ progress, slowdown, placement }) {
  const found = [];
  if (progress?.stepTime && progress.modelStepTime) {
    const [measured, modelled] = [seconds(progress.stepTime), seconds(progress.modelStepTime)];
    found.push([measured / modelled - 1, `a step takes ${span(measured)}, modelled ${span(modelled)}`]);
  }
  if (slowdown) found.push([slowdown.slower ?? Infinity, `over degraded ${(slowdown.links ?? []).join(", ")}`]);
  if (placement?.stepTime && placement.stepTimeLowerBound) {
    const [step, bound] = [seconds(placement.stepTime), seconds(placement.stepTimeLowerBound)];
    found.push([step / bound - 1, `modelled ${span(step)} a step, none below ${span(bound)}`]);
  }
  return found.sort((a, b) => b[0] - a[0])[0] ?? [0, ""];
}

/** When those that wait start, over the next day. */
function Gantt({ jobs }) {
  const box = useRef(null);
  const width = useWidth(box);
  const now = Date.now() / 1000;
  const rows = jobs.map((job) => ({ job, start: Date.parse(job.startEstimate?.startTime) / 1000 })).filter(({ start }) => start < now + DAY_S).slice(0, 20);
  const left = Math.min(150, width / 3);
  const x = (at) => left + ((Math.min(at, now + DAY_S) - now) / DAY_S) * (width - left);
  return html`<div ref=${box} class="gantt">${rows.length > 0 && html`
    <svg width=${width} height=${rows.length * 20 + 20} role="img" aria-label="Starts of waiting jobs within a day; the table below says the same.">
      ${ticks(now, now + DAY_S, Math.max(2, Math.floor(width / 110))).map((at) => html`<g key=${at}><line class="rule" x1=${x(at)} x2=${x(at)} y1="0" y2=${rows.length * 20} /><text x=${x(at)} y=${rows.length * 20 + 14} text-anchor="middle">${clockText(at, DAY_S)}</text></g>`)}
      ${rows.map(({ job, start }, row) => {
        const end = start + (job.spec?.timeLimit ? seconds(job.spec.timeLimit) : DAY_S);
        return html`<g key=${job.uid}><text x="0" y=${row * 20 + 14}>${jobName(job.name).slice(0, 24)}</text>
          <line class="waits" x1=${x(now)} x2=${x(start)} y1=${row * 20 + 10} y2=${row * 20 + 10} />
          <rect class="runs" x=${x(start)} width=${Math.max(2, x(end) - x(start))} y=${row * 20 + 3} height="14" rx="2" /></g>`;
      })}
    </svg>`}</div>`;
}

function gpusOf(job) {
  const ranksOf = (axes) => ["tp", "cp", "ep", "pp", "dp"].reduce((product, axis) => product * (axes[axis] ?? 1), 1);
  return shapesOf(job).reduce((sum, { axes }) => sum + ranksOf(axes), 0);
}

function sizeOf(job) {
  const placed = job.placement?.hostCount;
  if (placed) return `${counted(placed, "host")}${job.placement.spareCount ? ` + ${counted(job.placement.spareCount, "spare")}` : ""}`;
  return counted(gpusOf(job), "GPU");
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
  return html`<section aria-label=${`Why ${name} waits`}>
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
