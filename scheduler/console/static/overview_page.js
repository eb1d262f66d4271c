// The overview: a verdict a question, each a link to what proves it, and the cluster over time.

import { Chart } from "./chart.js";
import { count, counted, gpuHours, jobName, moment, percent, words } from "./format.js";
import { IncidentTable } from "./incidents_page.js";
import { isForecastPartial, slowestFirst, slownessOf, startOf } from "./queue_page.js";
import { go, hrefWith, useParam } from "./route.js";
import { html, Icon, jobHref, useCall, useCluster } from "./ui.js";

const WEEK_S = 7 * 86_400;
const RUNNING = { states: ["JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"], pageSize: 1000 };
const WAITING = { states: ["JOB_STATE_QUEUED"], orderBy: "priority desc, create_time", pageSize: 1000, estimateStarts: true };
const SPARES = { pageSize: 1000 };
const HOUR_MS = 3_600_000;
const BROKEN = ["failed", "in_repair", "rma"];

export function OverviewPage({ cluster }) {
  useCluster(cluster);
  const incidents = useCall(cluster, "ListIncidents", { pageSize: 6 });
  return html`
    <h1 tabindex="-1">${cluster.fabric?.name ?? "Overview"}</h1>
    <div class="cards">
      <${Broken} cluster=${cluster} incidents=${incidents.answer} />
      <${Queue} cluster=${cluster} />
      <${Slowest} cluster=${cluster} />
      <${Spares} cluster=${cluster} />
      <${Links} cluster=${cluster} />
      <${Goodput} cluster=${cluster} />
    </div>
    <${Trends} answer=${incidents.answer} hosts=${cluster.slots.length} />
    <h2><a href="#/incidents">What failed last</a></h2>
    ${incidents.answer && html`<${IncidentTable} incidents=${incidents.answer.incidents ?? []} />`}`;
}

/** `verdict`: good, warn or bad; `text`: the answer in a few words; `more`: what stands behind it, in lines. */
function Card({ verdict = "", title, href, text = "", more = [], error = null, children = null }) {
  const isKnown = Boolean(text);
  return html`<a class=${`verdict ${isKnown ? verdict : ""}`} href=${href}>
    <span class="title"><${Icon} name=${{ good: "circle-check", warn: "triangle-alert", bad: "circle-x" }[isKnown ? verdict : ""] ?? "circle-dashed"} /> ${title}</span>
    <strong>${isKnown ? text : error ? "not known" : "…"}</strong>
    ${error && html`<span class="problem">${error.message}</span>`}
    ${children}
    ${more.filter(Boolean).map((line) => html`<span key=${line} class="line">${line}</span>`)}
  </a>`;
}

function Broken({ cluster, incidents }) {
  const counts = new Map();
  for (const state of cluster.states) {
    const name = cluster.stateNames[state];
    if (!["healthy", "golden"].includes(name)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const down = BROKEN.reduce((sum, name) => sum + (counts.get(name) ?? 0), 0);
  const week = incidents?.weeks?.[0];
  const stopped = [...cluster.jobs.values()].filter(({ state }) => state === "interrupted");
  return html`<${Card} title="Broken now" verdict=${stopped.length ? "bad" : down ? "warn" : "good"} href="#/hosts"
    text=${cluster.fabric ? (down ? `${counted(down, "host")} down` : "no host is down") : undefined}
    more=${[
      stopped.length > 0 && `${counted(stopped.length, "gang")} stopped: ${stopped.slice(0, 3).map((job) => jobName(job.name)).join(", ")}`,
      [...counts].map(([name, number]) => `${count(number)} ${name.replaceAll("_", " ")}`).join(", "),
      week && `${counted(week.incidents, "failure")} this week cost ${gpuHours(week.lostGpuHours)}`,
    ]} />`;
}

function Queue({ cluster }) {
  const { answer, error } = useCall(cluster, "ListJobs", WAITING, isForecastPartial);
  const jobs = answer?.jobs ?? [];
  const longest = jobs.reduce((first, job) => (!first || job.createTime < first.createTime ? job : first), null);
  const next = jobs.filter((job) => job.startEstimate?.startTime).sort((a, b) => a.startEstimate.startTime.localeCompare(b.startEstimate.startTime))[0];
  return html`<${Card} title="Who waits" verdict=${jobs.length && !next ? "warn" : "good"} href="#/queue" error=${error}
    text=${answer && (jobs.length ? `${counted(jobs.length, "job")} wait${jobs.length === 1 ? "s" : ""}` : "nobody waits")}
    more=${[
      next ? `next: ${jobName(next.name)}, ${startOf(next.startEstimate)}` : jobs.length > 0 && "nobody has a start yet",
      longest && `longest: ${jobName(longest.name)}, since ${moment(longest.createTime)}`,
      longest?.reason,
    ]} />`;
}

function Slowest({ cluster }) {
  const { answer, error } = useCall(cluster, "ListJobs", RUNNING);
  const gangs = slowestFirst(answer?.jobs ?? []);
  const job = gangs[0];
  const [share, why] = job ? slownessOf(job) : [0, ""];
  const [stragglers, isSlow] = [job?.stragglerHosts ?? [], share >= 0.005];
  const measured = gangs.filter((each) => each.progress?.stepTime).length;
  const slower = share === Infinity ? "stands still" : isSlow ? `+${percent(share)}` : "has a straggler";
  return html`<${Card} title="Slowest gang" verdict=${share >= 0.05 ? "bad" : isSlow || stragglers.length ? "warn" : "good"} href=${isSlow || stragglers.length ? jobHref(job.name) : "#/queue?show=running"} error=${error}
    text=${answer && (isSlow || stragglers.length ? `${jobName(job.name)}: ${slower}` : "no gang is slow")}
    more=${[
      stragglers.length > 0 && `reported as slower than others: ${stragglers.slice(0, 3).join(", ")}${stragglers.length > 3 ? ` and ${count(stragglers.length - 3)} more` : ""}`,
      isSlow && why,
      `${counted(gangs.length, "gang")}; ${measured ? `${count(measured)} report their steps` : "none reports its steps, so this is modelled"}`,
    ]} />`;
}

function Spares({ cluster }) {
  const { answer, error } = useCall(cluster, "ListSpares", SPARES);
  const short = (answer?.zones ?? []).map((zone) => ({ ...zone, missing: (zone.target ?? 0) - (zone.held ?? 0) })).filter(({ missing }) => missing > 0);
  short.sort((a, b) => (b.savedGpuHoursPerYear ?? 0) - (a.savedGpuHoursPerYear ?? 0) || b.missing - a.missing);
  const [worst] = short;
  const free = (answer?.zones ?? []).filter((zone) => (zone.free ?? 0) > 0);
  const gang = worst && largestIn(cluster, worst.domain);
  return html`<${Card} title="Spares" verdict=${short.length ? "warn" : "good"} href="#/spares" error=${error}
    text=${answer && (short.length ? `${worst.domain}: ${count(worst.missing)} short` : "enough everywhere")}
    more=${[
      worst && `too few ${percent(worst.shortShare)} of the time${worst.savedGpuHoursPerYear >= 1 ? `; one more saves ${gpuHours(worst.savedGpuHoursPerYear)} a year` : ""}`,
      short.length > 1 && `also short: ${short.slice(1).map((zone) => `${zone.domain} ${count(zone.missing)}`).join(", ")}`,
      short.length > 0 && (free.length ? `free to move to: ${free.map((zone) => `${zone.domain} ${counted(zone.free, "host")}`).join(", ")}` : "no host is free: wait for one"),
    ]}>${gang && html`<${NextFailure} cluster=${cluster} name=${gang.name} domain=${worst.domain} />`}<//>`;
}

/** The gang that holds most hosts of an outermost domain. */
function largestIn({ fabric, slots, jobs }, domain) {
  const tier = fabric?.tiers[0];
  const at = tier?.domains.indexOf(domain) ?? -1;
  if (at < 0) return null;
  const first = tier.sizes.slice(0, at).reduce((sum, size) => sum + size, 0);
  const held = new Map();
  for (let host = first; host < first + tier.sizes[at]; host += 1) {
    if (jobs.has(slots[host])) held.set(slots[host], (held.get(slots[host]) ?? 0) + 1);
  }
  const [slot] = [...held].sort((a, b) => b[1] - a[1])[0] ?? [];
  return jobs.get(slot) ?? null;
}

function NextFailure({ cluster, name, domain }) {
  const { answer } = useCall(cluster, "ExplainJob", { name });
  const zone = (answer?.spareShortages ?? []).find((each) => each.domain === domain);
  return zone && html`<span class="line">a failure of ${jobName(name)} there ${zone.gpuHours >= 0.1 ? `costs ${gpuHours(zone.gpuHours)} beside a restart` : "costs a restart: hosts elsewhere take over"}</span>`;
}

function Links({ cluster }) {
  const { answer, error } = useCall(cluster, "ListLinks", {});
  const degraded = (answer?.links ?? []).filter((link) => (link.carriedShare ?? 0) < 1);
  const crossed = degraded.filter((link) => link.crossedBy?.length);
  return html`<${Card} title="Degraded links" verdict=${degraded.some((link) => !link.carriedShare) ? "bad" : crossed.length ? "warn" : "good"} href="#/map?colour=uplinks" error=${error}
    text=${answer && (degraded.length ? degraded.slice(0, 3).map((link) => `${link.name} at ${percent(link.carriedShare)}`).join(", ") : "all links are up")}
    more=${degraded.slice(0, 3).map((link) => (link.crossedBy?.length ? `over ${link.name}: ${link.crossedBy.slice(0, 3).map(jobName).join(", ")}${link.crossedBy.length > 3 ? ` and ${count(link.crossedBy.length - 3)} more` : ""}` : `nobody crosses ${link.name}`))} />`;
}

/** The last week by the server's clock, from a whole hour: the same question is asked again, and not another one. */
function Goodput({ cluster }) {
  const { answer } = useCall(cluster, "GetStatus", { gangs: 1, incidents: 1 });
  if (!answer) return html`<${Card} title="Goodput of the week" href="#/incidents" />`;
  const from = new Date(Math.floor(Date.parse(answer.server.time) / HOUR_MS) * HOUR_MS - WEEK_S * 1000).toISOString();
  return html`<${GoodputSince} cluster=${cluster} from=${from} />`;
}

function GoodputSince({ cluster, from }) {
  const { answer, error } = useCall(cluster, "SumUsage", { startTime: from });
  const { goodput = {}, heldGpuHours = 0 } = answer?.total ?? {};
  const lost = (goodput.parts ?? []).filter(({ part }) => !/PRODUCTIVE|QUEUEING/.test(part)).filter((each) => each.gpuHours > 0).sort((a, b) => b.gpuHours - a.gpuHours);
  return html`<${Card} title="Goodput of the week" verdict=${goodput.goodput >= 0.9 || !heldGpuHours ? "good" : goodput.goodput >= 0.75 ? "warn" : "bad"} href="#/incidents" error=${error}
    text=${answer && (heldGpuHours ? percent(goodput.goodput) : "nothing has run")}
    more=${[
      `of ${gpuHours(heldGpuHours)} held`,
      lost.length > 0 && `taken by ${lost.slice(0, 3).map((each) => `${words(each.part, "GOODPUT_PART")} ${percent(each.gpuHours / heldGpuHours)}`).join(", ")}`,
    ]} />`;
}

/** Charts of the log. A span that is drawn stands in the address. */
export function Trends({ answer, hosts }) {
  const [chosen] = useParam("span");
  if (!answer) return html`<p class="quiet">Reading the log.</p>`;
  const samples = (answer.samples ?? []).map((each) => ({ ...each, at: Date.parse(each.time) / 1000 }));
  if (samples.length < 2) return html`<p class="quiet">The log has nothing to draw yet.</p>`;
  const whole = [samples[0].at, samples.at(-1).at];
  const [from, to] = chosen ? chosen.split("-").map(Number) : whole;
  const column = (of) => samples.map((each) => [each.at, of(each)]);
  const shared = { from, to, onSpan: (first, last) => go({ span: `${first.toFixed(0)}-${Math.ceil(last)}` }) };
  return html`<h2>Over time ${chosen && html`<a class="button" href=${hrefWith({ span: "" })}>All of it</a>`}</h2>
    <div class="charts">
      <${Chart} title="Jobs that wait" points=${column((each) => each.queuedJobs ?? 0)} textOf=${(value) => count(Math.round(value))} ...${shared} />
      <${Chart} title="Hosts held" points=${column((each) => (each.heldHosts ?? 0) / Math.max(hosts, 1))} most=${1} textOf=${(value) => percent(value)} ...${shared} />
      <${Chart} title="Goodput" points=${column((each) => each.goodput ?? null)} most=${1} textOf=${(value) => percent(value)} ...${shared} />
      <${Chart} title="Failures" points=${column((each) => each.failures ?? 0)} textOf=${(value) => count(Math.round(value))} isBars=${true} ...${shared} />
    </div>`;
}
