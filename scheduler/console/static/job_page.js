// One job: where its gang lies, how good that is, what became of it, and what it writes.

import { stream } from "./api.js";
import { bytes, count, counted, jobName, moment, percent, seconds, span, words } from "./format.js";
import { coordinates, shapesOf } from "./geometry.js";
import { JobActions } from "./actions.js";
import { IncidentTable, Ladder } from "./incidents_page.js";
import { Explanation } from "./queue_page.js";
import { isDark, onTheme } from "./theme.js";
import { Facts, HostLink, HostLinks, html, JobLink, Problem, Source, Table, useCall, useCluster, useEffect, useRef, useState, Waiting } from "./ui.js";

const WAITS = "JOB_STATE_QUEUED";
const LIVE = new Set([WAITS, "JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"]);
const MOST_LOG = 200_000; // characters kept of a log
const INCIDENTS = { pageSize: 1000 };

export function JobPage({ cluster, name }) {
  const body = { name };
  const state = useCall(cluster, "GetJob", body);
  return html`<h1 tabindex="-1">Job ${jobName(name)}</h1>
    <${Waiting} state=${state}>${(job) => html`<${Shown} cluster=${cluster} job=${job} />`}<//>
    <${Source} method="GetJob" body=${body} />`;
}

/** Sizes of the axes that are wider than one rank. */
function sizesOf(axes) {
  const wide = ["tp", "cp", "ep", "pp", "dp"].filter((axis) => axes[axis] > 1);
  return wide.map((axis) => `${axis} ${axes[axis]}`).join(" × ") || "one rank";
}

function Shown({ cluster, job }) {
  useCluster(cluster); // who calls and the fabric may come after the job
  const { placement = {}, spec = {} } = job;
  const parallelism = shapesOf(job).map(({ name, axes }) => {
    const again = job.roleRestarts?.[name];
    return `${name && `${name}: `}${sizesOf(axes)}${again ? `, began again alone ${counted(again, "time")} in this attempt` : ""}`;
  });
  return html`
    <${Facts} facts=${[
      ["State", words(job.state, "JOB_STATE")],
      ["Since", moment(job.updateTime)],
      ["Tenant", job.tenant],
      ["User", job.user],
      ["Priority", count(job.priority)],
      ["Submitted", moment(job.createTime)],
      ["Attempt", job.attempt ? count(job.attempt) : ""],
      ["Ranks started", moment(job.launchTime)],
      ["Parallelism", parallelism.join("; ")],
      ["Time limit", spec.timeLimit ? span(seconds(spec.timeLimit)) : ""],
      ["Step", stepOf(job.progress)],
      ["Held by", job.hold ? words(job.hold, "HOLD") : ""],
      ["Labels", Object.entries(spec.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
      ["Preemptible", job.preemptible ? "yes" : ""],
    ]} />
    ${job.reason && html`<p>${job.reason}</p>`}
    <${JobActions} cluster=${cluster} job=${job} />
    ${job.state === WAITS && html`<${Explanation} cluster=${cluster} name=${job.name} />`}
    <div class="columns">
      ${placement.hostCount > 0 && html`<section><${PlacementPart} cluster=${cluster} job=${job} /></section>`}
      <section><${Restarts} cluster=${cluster} job=${job} /><${Progress} job=${job} />
        ${spec.run && LIVE.has(job.state) && html`<${Logs} key=${job.uid} job=${job} />`}</section>
    </div>
  `;
}

// --- where it lies, and how good that is ---

function PlacementPart({ cluster, job }) {
  const { placement } = job;
  const bound = placement.stepTimeLowerBound;
  return html`
    <h2>Placement</h2>
    <${Facts} facts=${[
      ["Hosts", count(placement.hostCount)],
      ["Spares", count(placement.spareCount)],
      ["Lent spares", placement.lent?.length ? count(placement.lent.length) : ""],
      ["Minimises", { OBJECTIVE_TIME: "the step", OBJECTIVE_CUT: "the cut", OBJECTIVE_SPREAD: "the spread" }[placement.objective] ?? ""],
      ["Left open of that", leftOpen(placement)],
      ["Step", placement.stepTime ? span(seconds(placement.stepTime)) : ""],
      ["No step is shorter than", bound ? span(seconds(bound)) : ""],
      ["Outermost cut", placement.cuts?.length ? `${bytes(placement.cuts[0].bytesPerStep)} a step` : ""],
      ["No layout at all cuts less than", placement.cuts?.length ? bytes(placement.lowerBoundBytesPerStep) : ""],
      ["Step, measured and modelled", stepsOf(job.progress)],
      ["Slower by degraded links", slowdownOf(job.slowdown)],
    ]} />
    ${(placement.notes ?? []).map((note) => html`<p key=${note} class="quiet">${note}</p>`)}
    <${Table} caption="Bytes a step over each tier" rows=${placement.cuts ?? []} keyOf=${(cut) => cut.tier} columns=${[
      { title: "Tier", of: (cut) => cut.tier },
      { title: "In all", isNumber: true, of: (cut) => bytes(cut.bytesPerStep) },
      ...["tp", "cp", "ep", "pp", "dp"].filter((axis) => placement.cuts?.some((cut) => cut.byAxis?.[axis])).map((axis) => (
        { title: axis, isNumber: true, of: (cut) => bytes(cut.byAxis?.[axis]) })),
    ]} />
    ${placement.hosts?.length > 0 && cluster.fabric && html`<${Grid} cluster=${cluster} job=${job} />`}
  `;
}

/** How far it may be from the best in what the job minimises; "" where nothing is proved of that. */
function leftOpen(placement) {
  if (placement.objectiveGap === undefined) return "";
  return placement.objectiveGap < 1e-4 ? "nothing: optimal" : percent(placement.objectiveGap);
}

/** How far its ranks are, how fast, and when they are done at that rate. */
function stepOf(progress) {
  if (!Number(progress?.step)) return "";
  const { step, totalSteps, stepTime, loss, busy } = progress;
  const each = stepTime ? seconds(stepTime) : 0;
  const left = Number(totalSteps) - Number(step);
  return [
    Number(totalSteps) ? `${count(step)} of ${count(totalSteps)}` : count(step),
    each && `${span(each)} each`,
    each && left > 0 && `ends in ${span(left * each)}`,
    loss !== undefined && `loss ${Number(loss).toPrecision(4)}`,
    busy,
  ].filter(Boolean).join(", ");
}

function stepsOf(progress) {
  if (!progress?.stepTime) return "";
  const measured = span(seconds(progress.stepTime));
  if (!progress.modelStepTime) return measured;
  const [low, likely, high] = [progress.modelStepTimeLow, progress.modelStepTime, progress.modelStepTimeHigh].map(
    (each) => span(seconds(each)),
  );
  const slower = progress.slowerThanModel ? ": slower than its model" : "";
  return `${measured}; modelled ${likely}, ${low} to ${high} in 8 of 10 such runs${slower}`;
}

function slowdownOf(slowdown) {
  if (!slowdown) return "";
  const links = (slowdown.links ?? []).join(", ");
  return slowdown.slower === undefined ? `it stands still, over ${links}` : `${percent(slowdown.slower)}, over ${links}`;
}

/** Blocks by stage and place in the stage, each in the colour and with the letter of its domain. */
function Grid({ cluster, job }) {
  const canvas = useRef(null);
  const { fabric } = cluster;
  const plan = planOf(fabric, job);
  useEffect(() => {
    const ending = new AbortController();
    const paint = () => paintGrid(canvas.current, plan, isDark());
    const resizing = new ResizeObserver(paint);
    resizing.observe(canvas.current.parentElement);
    onTheme(paint, ending.signal);
    return () => {
      resizing.disconnect();
      ending.abort();
    };
  }, [job.etag, job.version, fabric]);
  if (!plan.rows.length) return null;
  const hasRoles = job.spec?.roles?.length > 0;
  const columns = [
    { title: hasRoles ? "Role and stage" : "Stage", isNumber: !hasRoles, of: ({ label }) => label },
    ...plan.domains.map((name, domain) => ({
      title: name, isNumber: true, of: ({ blocks }) => count(blocks.filter((each) => each.domain === domain).length),
    })),
  ];
  return html`
    <h3>Blocks by pipeline stage and ${plan.tier}</h3>
    <div class="grid"><canvas ref=${canvas} role="img" aria-label=${`Each block of the gang in the colour of its ${plan.tier}, a row a stage. The table below says the same.`}></canvas></div>
    <${Table} caption=${`Hosts of each stage in each ${plan.tier}`} columns=${columns} rows=${plan.rows} keyOf=${({ label }) => label} />
    <details><summary>Hosts in the order of their blocks</summary><p class="hosts"><${HostLinks} names=${job.placement.hosts} /></p>
      ${job.placement.spares?.length > 0 && html`<p class="hosts">Spares: <${HostLinks} names=${job.placement.spares} /></p>`}</details>`;
}

/** Axes, first rank and end of each role; of a gang that names none of all of it. */
function partsOf(job) {
  let end = 0;
  return shapesOf(job).map(({ name, axes: own }) => {
    const axes = (own.order || "tp-cp-ep-pp-dp").split("-").map((axis) => [axis, own[axis] ?? 1]);
    const first = end;
    end += axes.reduce((product, [, size]) => product * size, 1);
    return { role: name, axes, first, end };
  });
}

function planOf(fabric, job) {
  const tier = fabric.tiers[0] ?? { name: "fabric", domains: [fabric.name], sizes: [fabric.hosts.length] };
  const domainOf = new Map();
  let host = 0;
  tier.sizes.forEach((size, domain) => {
    for (let at = 0; at < size; at += 1, host += 1) domainOf.set(fabric.hosts[host], domain);
  });
  const parts = partsOf(job);
  const { hosts } = job.placement;
  const onHost = Math.round(parts.at(-1).end / hosts.length);
  const rows = parts.flatMap(({ role, axes, first, end }) => {
    const stages = [];
    for (let block = first / onHost; block < end / onHost; block += 1) {
      const stage = coordinates(axes, block * onHost - first).pp ?? 0;
      (stages[stage] ??= []).push({ name: hosts[block], domain: domainOf.get(hosts[block]) ?? -1 });
    }
    return stages.map((blocks, stage) => ({ label: role && stages.length > 1 ? `${role} ${stage}` : role || String(stage), blocks }));
  });
  const present = [...new Set(rows.flatMap(({ blocks }) => blocks).map(({ domain }) => domain))].sort((a, b) => a - b);
  const renumbered = new Map(present.map((domain, at) => [domain, at]));
  return {
    tier: tier.name,
    domains: present.map((domain) => tier.domains[domain] ?? "not in the fabric any more"),
    rows: rows.map(({ label, blocks }) => ({ label, blocks: blocks.map((each) => ({ ...each, domain: renumbered.get(each.domain) })) })),
  };
}

function paintGrid(canvas, { rows, domains }, isDark) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  const most = Math.max(...rows.map(({ blocks }) => blocks.length));
  const left = 20 + 8 * Math.max(...rows.map(({ label }) => label.length));
  const cell = Math.max(2, Math.min(22, (width - left) / most));
  const height = Math.max(cell, 12);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${rows.length * height + 2}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round((rows.length * height + 2) * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, rows.length * height + 2);
  const ink = getComputedStyle(canvas).color;
  context.textBaseline = "middle";
  rows.forEach(({ label, blocks }, stage) => {
    const y = stage * height;
    context.fillStyle = ink;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.fillText(label, left - 6, y + height / 2);
    blocks.forEach(({ domain }, at) => {
      const x = left + at * cell;
      const lightness = (isDark ? 0.7 : 0.74) + 0.12 * (domain % 2);
      context.fillStyle = `oklch(${lightness} 0.13 ${(domain * 137.508) % 360})`;
      context.fillRect(x, y, cell > 4 ? cell - 1 : cell, height - 1);
      if (cell >= 17 && domains.length > 1) {
        context.fillStyle = "#000";
        context.textAlign = "center";
        context.fillText(domains[domain].slice(-2), x + cell / 2, y + height / 2);
      }
    });
  });
}

// --- what became of it ---

function Restarts({ cluster, job }) {
  const { answer, error } = useCall(cluster, "ListIncidents", INCIDENTS);
  const incidents = (answer?.incidents ?? []).filter((each) => each.job === job.name);
  const isRunning = job.state === "JOB_STATE_RUNNING";
  return html`
    <h2>Failures and restarts</h2>
    <${Problem} error=${error} />
    <${IncidentTable} incidents=${incidents} />
    ${job.restartOptions?.length > 0 && html`<h3>The last restart</h3><${Ladder} caption="Ways to go on after the last failure" options=${job.restartOptions} />`}
    ${isRunning && html`<${Outlook} cluster=${cluster} name=${job.name} />`}`;
}

function Outlook({ cluster, name }) {
  const body = { name };
  const state = useCall(cluster, "ExplainJob", body);
  return html`<h3>If a host failed now</h3>
    <${Waiting} state=${state}>${({ restart, sharedUplinks = [] }) => html`
      ${restart && html`<p>If <${HostLink} name=${restart.host} /> failed:</p><${Ladder} caption="Ways to go on if a host failed now" options=${restart.restartOptions ?? []} />`}
      ${sharedUplinks.length > 0 && html`<${Table} caption="Uplinks shared with other gangs" rows=${sharedUplinks} columns=${[
        { title: "Uplink of", of: (each) => each.link },
        { title: "With", of: (each) => html`<${JobLink} name=${each.job} />` },
        { title: "This gang keeps it busy", isNumber: true, of: (each) => percent(each.busyShare) },
      ]} />`}`}
    <//>
    <${Source} method="ExplainJob" body=${body} />`;
}

function Progress({ job }) {
  const { goodput, savedCheckpoint: saved } = job;
  return html`
    <h2>Checkpoints and goodput</h2>
    ${saved
      ? html`<${Facts} facts=${[["Newest checkpoint", `step ${count(saved.step)}`], ["Reported", moment(saved.createTime)], ["Attempt", count(saved.attempt)], ["Where", saved.where]]} />`
      : html`<p class="quiet">Its ranks have reported no checkpoint.</p>`}
    ${goodput && html`
      <${Facts} facts=${[["Effective training time", percent(goodput.ettr)], ["Goodput", percent(goodput.goodput)], ["Counted by", saved ? "checkpoints that its ranks reported" : "the usual interval of checkpoints: assumed"]]} />
      <${Table} caption="Where its time went" rows=${goodput.parts ?? []} keyOf=${(each) => each.part} columns=${[
        { title: "Part", of: (each) => words(each.part, "GOODPUT_PART") },
        { title: "Time", isNumber: true, of: (each) => span(seconds(each.duration)) },
        { title: "Share", isNumber: true, of: (each) => percent(each.share) },
        { title: "GPU-hours", isNumber: true, of: (each) => count(Math.round(10 * (each.gpuHours ?? 0)) / 10) },
      ]} />`}`;
}

// --- what it writes ---

function Logs({ job }) {
  const [rank, setRank] = useState(0);
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [reading, setReading] = useState(null);
  useEffect(() => () => reading?.abort(), [reading]);
  const read = async (event) => {
    event.preventDefault();
    const ending = new AbortController();
    const decoder = new TextDecoder();
    setReading(ending);
    setError(null);
    setText("");
    try {
      const body = { name: job.name, uid: job.uid, rank, lines: 200, follow: true };
      for await (const { data = "" } of stream("TailLogs", body, ending.signal)) {
        const piece = decoder.decode(Uint8Array.from(atob(data), (each) => each.charCodeAt(0)), { stream: true });
        setText((before) => (before + piece).slice(-MOST_LOG));
      }
    } catch (problem) {
      if (!ending.signal.aborted) setError(problem);
    }
  };
  return html`<h2>Logs</h2>
    <form class="search" onSubmit=${read}>
      <label for="rank">Rank</label>
      <input id="rank" type="number" min="0" value=${rank} onInput=${(event) => setRank(Math.max(0, Number(event.target.value)))} />
      <button>Follow its log</button>
    </form>
    <${Problem} error=${error} />
    ${reading && html`<pre class="log" tabindex="0" role="log" aria-label=${`Log of rank ${rank}`}>${text || "Nothing yet."}</pre>`}`;
}
