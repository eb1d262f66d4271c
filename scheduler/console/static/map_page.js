// The map: every host and GPU, what it does, and for whom.

import { HostActions } from "./actions.js";
import { MapCanvas } from "./canvas.js";
import { count, jobName, percent } from "./format.js";
import { coordinates, domainsOf, roleOf } from "./geometry.js";
import { hostFacts } from "./host_page.js";
import { IncidentTable } from "./incidents_page.js";
import { NOBODY, SOMEBODY } from "./live.js";
import { scheme, useOf } from "./palette.js";
import { useParam } from "./route.js";
import { Badge, Facts, html, jobHref, JobLink, JobLinks, Problem, Source, Table, useCall, useCluster, useEffect, useRef, useState } from "./ui.js";

const MODES = [["state", "State"], ["job", "Job"], ["tenant", "Tenant"]];
const ASKED = [["uplinks", "Uplinks"], ["fit", "What would fit"]]; // of which a live server is asked
const LONGEST_LEGEND = 24;
const INCIDENTS = { pageSize: 12 };

export function MapPage({ cluster }) {
  useCluster(cluster);
  if (!cluster.fabric) {
    return html`<h1 tabindex="-1">Map</h1>
      ${cluster.problem ? html`<p class="problem" role="alert">${cluster.problem}</p>` : html`<p class="quiet">Waiting for the first picture of the cluster.</p>`}`;
  }
  return html`
    <h1 tabindex="-1">Map of ${cluster.fabric.name}</h1>
    <${MapView} cluster=${cluster} isLive=${true} />
    <${Incidents} cluster=${cluster} />`;
}

/** The map of a cluster that is there, as it is now or in a recording. */
export function MapView({ cluster, isLive = false }) {
  useCluster(cluster);
  const [mode, setMode] = useParam("colour", "state");
  const [outlined, setOutlined] = useParam("job");
  const [heldHost, setHeldHost] = useParam("host");
  const [pointed, setPointed] = useState({ host: -1, gpu: -1 });
  const [sought, setSought] = useState("");
  const slot = [...cluster.jobs.values()].find((job) => jobName(job.name) === outlined)?.slot ?? 0;
  const canvases = useRef({});
  const map = useRef(null);
  useEffect(() => {
    const { base, overlay } = canvases.current;
    map.current = new MapCanvas(base, overlay, cluster, {
      onPoint: (host, gpu) => setPointed({ host, gpu }),
      onOpen: (host) => {
        const job = cluster.jobOf(host);
        location.hash = job ? jobHref(job.name) : `#/host/${encodeURIComponent(cluster.fabric.hosts[host])}`;
      },
      onHold: (host) => setHeldHost(host < 0 ? "" : cluster.fabric.hosts[host]),
    });
    globalThis.musterMap = map.current; // for tests and benchmarks, which look at what was painted
    return () => map.current.close();
  }, [cluster]);
  const isFitted = Boolean(map.current?.plan);
  useEffect(() => map.current.colourBy(mode), [mode]);
  useEffect(() => map.current.outline(slot), [slot]);
  useEffect(() => {
    map.current.hold(heldHost ? cluster.fabric.hosts.indexOf(heldHost) : -1);
  }, [heldHost, isFitted]);
  const mark = (chosen) => setOutlined(chosen ? jobName(cluster.jobs.get(chosen).name) : "");
  return html`
    <${Totals} cluster=${cluster} />
    <div class="toolbar">
      <fieldset class="choice"><legend>Colour by</legend>
        ${[...MODES, ...(isLive ? ASKED : [])].map(([value, label]) => html`<label key=${value}><input type="radio" name="mode" value=${value} checked=${mode === value} onChange=${() => setMode(value)} /> ${label}</label>`)}
      </fieldset>
      <${Search} cluster=${cluster} text=${sought} onText=${setSought} onHost=${(host) => (host < 0 ? map.current.point(-1, -1) : map.current.go(host))} onJob=${mark} />
      <div class="buttons" role="group" aria-label="Zoom">
        <button type="button" onClick=${() => map.current.zoom(1.5)} aria-label="Zoom in">+</button>
        <button type="button" onClick=${() => map.current.zoom(1 / 1.5)} aria-label="Zoom out">−</button>
        <button type="button" onClick=${() => map.current.fit()}>Fit</button>
      </div>
    </div>
    ${mode === "uplinks" && html`<${BusyUplinks} cluster=${cluster} map=${map} />`}
    ${mode === "fit" && html`<${Fits} cluster=${cluster} map=${map} />`}
    <div class="map">
      <div class="canvases">
        <canvas ref=${(node) => { canvases.current.base = node; }} aria-hidden="true"></canvas>
        <canvas ref=${(node) => { canvases.current.overlay = node; }} tabindex="0" role="application" aria-label="Map of all hosts" aria-describedby="map-help"></canvas>
      </div>
      <aside aria-label="Details">
        <div aria-live="polite" class="details">
          <${Details} cluster=${cluster} host=${pointed.host} gpu=${pointed.gpu} isLive=${isLive} />
        </div>
        ${pointed.host >= 0 && isLive && html`<${PointedHost} key=${pointed.host} cluster=${cluster} name=${cluster.fabric.hosts[pointed.host]} />`}
        <p id="map-help" class="quiet small">Arrows go from host to host, + and - zoom, 0 shows everything, Enter opens the job. With a pointer: wheel and drag, or two fingers; a click holds a host, so that its buttons can be reached, and another lets it go.</p>
        <h2>Legend</h2>
        <${Legend} cluster=${cluster} mode=${mode} slot=${slot} onMark=${mark} />
      </aside>
    </div>
    <${Zones} cluster=${cluster} onZone=${(place) => { map.current.showZone(place); canvases.current.overlay.scrollIntoView({ block: "nearest" }); }} />
  `;
}

/** Asks how busy the uplinks of the outermost domains are, for the map's colours. */
function BusyUplinks({ cluster, map }) {
  const tier = cluster.fabric.tiers[0];
  const { answer, error } = useCall(cluster, "ListLinks", { showAll: true, ...(tier && { filter: `tier = "${tier.name}"` }) });
  const degraded = (answer?.links ?? []).filter((link) => (link.carriedShare ?? 0) < 1);
  useEffect(() => {
    cluster.busy = new Map((answer?.links ?? []).map((link) => [link.name, link.busyShare ?? 0]));
    cluster.carried = new Map((answer?.links ?? []).map((link) => [link.name, link.carriedShare ?? 0]));
    map.current?.repaint();
    cluster.tell({ hosts: new Uint32Array(0), jobs: false });
  }, [answer]);
  return html`<${Problem} error=${error} />
    <p class="quiet small">How busy the gangs that run keep the uplink of each ${tier?.name ?? "domain"}, by their steps and traffic. The page Hosts and links has the numbers.</p>
    ${degraded.length > 0 && html`<p>${degraded.map((link) => html`<span key=${link.name} class="line"><${Badge} kind=${link.carriedShare ? "warn" : "bad"} icon="triangle-alert">${link.name} carries ${percent(link.carriedShare)}<//> shared by ${link.crossedBy?.length ? html`<${JobLinks} names=${link.crossedBy} />` : "nobody"}. </span>`)}</p>`}`;
}

/** Asks which domains have room for a job of a size, for the map's colours. */
function Fits({ cluster, map }) {
  const [size, setSize] = useState(0);
  const { answer, error } = useCall(cluster, "ListSlots", {});
  const sizes = answer?.slots ?? [];
  useEffect(() => {
    cluster.fits = new Map((answer?.domains ?? []).map((each) => [each.domain, each.slots?.[size] ?? 0]));
    map.current?.repaint();
    cluster.tell({ hosts: new Uint32Array(0), jobs: false });
  }, [answer, size]);
  return html`<${Problem} error=${error} />
    <p><label for="fit-size">A job of</label> <select id="fit-size" value=${size} onChange=${(event) => setSize(Number(event.target.value))}>
      ${sizes.map((slot, at) => html`<option key=${at} value=${at}>${count(slot.gpus)} GPUs</option>`)}</select>
    <span class="quiet">${sizes[size] && `${count(sizes[size].inAll)} would start now, behind all that wait; ${count(sizes[size].inside)} inside one domain each`}</span></p>`;
}

function Totals({ cluster }) {
  const uses = usage(cluster, 0, cluster.slots.length);
  const gpus = (name) => count(uses.gpus.get(name) ?? 0);
  return html`<${Facts} facts=${[
    ["Hosts", count(cluster.slots.length)],
    ["GPUs", count(uses.all)],
    ["GPUs of gangs that run", gpus("running")],
    ["GPUs stopped by failures", uses.gpus.get("stopped") ? gpus("stopped") : ""],
    ["Spare GPUs", gpus("spare")],
    ["Free GPUs", gpus("free")],
    ["GPUs held by other tenants", uses.gpus.get("somebody") ? gpus("somebody") : ""],
    ["GPUs not in plain service", count(uses.out)],
    ["Gangs", count(cluster.jobs.size)],
  ]} />`;
}

/** GPUs of these hosts by use; `out`: those whose state is the first thing to say of them. */
function usage(cluster, first, size) {
  const { fabric } = cluster;
  const gpusOf = Array.isArray(fabric.gpus) ? (host) => fabric.gpus[host] : () => fabric.gpus;
  const gpus = new Map();
  const plain = new Set(["running", "stopped", "spare", "free", "somebody"]);
  let [all, out] = [0, 0];
  for (let host = first; host < first + size; host += 1) {
    const name = useOf(cluster, host);
    gpus.set(name, (gpus.get(name) ?? 0) + gpusOf(host));
    all += gpusOf(host);
    if (!plain.has(name)) out += gpusOf(host);
  }
  return { gpus, all, out };
}

function Search({ cluster, text, onText, onHost, onJob }) {
  const [miss, setMiss] = useState("");
  const seek = (event) => {
    event.preventDefault();
    const wanted = text.trim();
    const { hosts } = cluster.fabric;
    const jobs = [...cluster.jobs.values()];
    const [exact, part] = [hosts.indexOf(wanted), wanted ? hosts.findIndex((name) => name.includes(wanted)) : -1];
    const job = jobs.find((each) => [each.shortName, jobName(each.name)].includes(wanted)) ?? jobs.find((each) => wanted && jobName(each.name).includes(wanted));
    const host = exact >= 0 || !job ? Math.max(exact, part) : -1;
    setMiss("");
    if (host >= 0) onHost(host);
    else if (job) onJob(job.slot);
    else {
      onHost(-1);
      onJob(0);
      if (wanted) setMiss(`No host and no gang has ${wanted} in its name.`);
    }
  };
  return html`<form class="search" role="search" onSubmit=${seek}>
    <label for="seek">Host or job</label>
    <input id="seek" value=${text} onInput=${(event) => onText(event.target.value)} autocomplete="off" spellcheck=${false} />
    <button>Show</button>
    <span role="status">${miss}</span>
  </form>`;
}

function Details({ cluster, host, gpu, isLive }) {
  if (host < 0) return html`<h2>Details</h2><p class="quiet">Point at a host, or go to one by the arrow keys.</p>`;
  const { fabric } = cluster;
  const slot = cluster.slots[host];
  const job = cluster.jobs.get(slot);
  const block = cluster.blocks[host];
  const gpus = Array.isArray(fabric.gpus) ? fabric.gpus[host] : fabric.gpus;
  const domains = domainsOf(fabric, host).map((name, tier) => [fabric.tiers[tier].name, name]);
  const facts = [["State", cluster.stateOf(host).replaceAll("_", " ")]];
  if (slot === NOBODY) facts.push(["Held by", "nobody"]);
  else if (slot === SOMEBODY) facts.push(["Held by", "another tenant"]);
  else if (job) {
    facts.push(["Job", html`<${JobLink} name=${job.name} />`], ["Tenant", job.tenant], ["Gang", job.state]);
    if (block < 0) facts.push(["Part", "spare"]);
    else if (sizeOf(job) < gpus) {
      const name = fabric.hosts[host];
      const shared = isLive ? html`<${Sharers} cluster=${cluster} name=${name} />` : html`<p>Shared by jobs smaller than a host.</p>`;
      return html`<h2>${name}</h2><${Facts} facts=${[...domains, facts[0]]} />${shared}`;
    } else facts.push(...ranksOf(job, block, gpus, gpu));
  }
  return html`<h2>${fabric.hosts[host]}</h2><${Facts} facts=${[...domains, ...facts]} />`;
}

/** How many ranks a job has. */
function sizeOf(job) {
  return job.axes.reduce((ranks, [, size]) => ranks * size, 1);
}

/** The jobs that share a host, each with its GPUs, at which the pointer rests. */
function Sharers({ cluster, name }) {
  return html`<${Resting} key=${name}><${SharersOf} cluster=${cluster} name=${name} /></${Resting}>`;
}

function SharersOf({ cluster, name }) {
  const { answer } = useCall(cluster, "GetHost", { name });
  const facts = (answer?.parts ?? []).map((part) => [`GPU ${(part.gpus ?? []).join(", ")}`, html`<${JobLink} name=${part.job} />`]);
  return answer && html`<${Facts} facts=${facts} />`;
}

/** Buttons for a host at which the pointer rests, or to which the keyboard went. */
function PointedHost({ cluster, name }) {
  return html`<${Resting}><${MeantHost} cluster=${cluster} name=${name} /></${Resting}>`;
}

/** What asks the server is shown once the pointer rests. */
function Resting({ children }) {
  const [isMeant, setIsMeant] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setIsMeant(true), 400);
    return () => clearTimeout(timer);
  }, []);
  return isMeant && children;
}

function MeantHost({ cluster, name }) {
  const { answer } = useCall(cluster, "GetHost", { name });
  const isNoted = answer && (answer.reason || !["HOST_STATE_HEALTHY", "HOST_STATE_GOLDEN"].includes(answer.state));
  return answer && html`${isNoted && html`<${Facts} facts=${hostFacts(answer).slice(1, -1)} />`}
    <p><a href=${`#/host/${encodeURIComponent(name)}`}>History, signals and cost of ${name}</a></p>
    <${HostActions} cluster=${cluster} host=${answer} />`;
}

/** What a host of a gang, or one GPU of it, does for its job. */
function ranksOf(job, block, gpus, gpu) {
  const [first, last] = gpu < 0 ? [block * gpus, (block + 1) * gpus - 1] : [block * gpus + gpu, block * gpus + gpu];
  const { role, axes, rank } = roleOf(job, first);
  const [from, to] = [coordinates(axes, rank), coordinates(axes, rank + last - first)];
  const names = { pp: "Stage", dp: "Replica", tp: "Tensor rank", cp: "Context rank", ep: "Expert rank" };
  const shown = ["pp", "dp", "tp", "cp", "ep"].map((axis) => [axis, new Map(axes).get(axis) ?? 1]);
  return [
    ...(role ? [["Role", role]] : []),
    [first === last ? "Rank" : "Ranks", first === last ? count(first) : `${count(first)} to ${count(last)}`],
    ...shown.filter(([, size]) => size > 1).map(([axis, size]) => [
      names[axis], `${from[axis] === to[axis] ? from[axis] : `${from[axis]} to ${to[axis]}`} of 0 to ${size - 1}`,
    ]),
  ];
}

function Legend({ cluster, mode, slot, onMark }) {
  const { entries, fills, categoryOf } = scheme(cluster, mode);
  const sizes = new Map();
  for (let host = 0; host < cluster.slots.length; host += 1) {
    const category = categoryOf(host);
    sizes.set(category, (sizes.get(category) ?? 0) + 1);
  }
  const sizeOf = ({ category }) => sizes.get(category) ?? 0;
  const present = entries.filter(sizeOf);
  if (mode !== "state") present.sort((a, b) => sizeOf(b) - sizeOf(a));
  const slots = new Map([...cluster.jobs.values()].map((job) => [jobName(job.name), job.slot]));
  const rest = present.slice(LONGEST_LEGEND);
  return html`<ul class="legend">
    ${present.slice(0, LONGEST_LEGEND).map((entry) => {
      const its = mode === "job" ? slots.get(entry.label) : undefined;
      return html`<li key=${entry.label}>
        <svg viewBox="0 0 1 1" aria-hidden="true"><rect width="1" height="1" fill=${fills[entry.category]} /></svg>
        ${its === undefined
          ? html`<span>${entry.label}</span>`
          : html`<button type="button" class="link" aria-pressed=${slot === its} onClick=${() => onMark(slot === its ? 0 : its)}>${entry.label}</button>`}
        <span class="number">${count(sizeOf(entry))}</span>
      </li>`;
    })}
    ${rest.length > 0 && html`<li key="rest"><span>${count(rest.length)} more</span><span class="number">${count(rest.reduce((sum, entry) => sum + sizeOf(entry), 0))}</span></li>`}
  </ul><p class="quiet small">Numbers of hosts. Spares of a gang have small cells, hosts out of service a cross.</p>`;
}

function Zones({ cluster, onZone }) {
  const { fabric } = cluster;
  const tier = fabric.tiers[0];
  if (!tier) return null;
  let first = 0;
  const rows = tier.domains.map((name, place) => {
    const uses = usage(cluster, first, tier.sizes[place]);
    first += tier.sizes[place];
    return { name, place, hosts: tier.sizes[place], ...uses };
  });
  const gpus = (name) => ({ isNumber: true, of: (row) => count(row.gpus.get(name) ?? 0) });
  const has = (name) => rows.some((row) => row.gpus.get(name));
  const columns = [
    { title: tier.name, of: (row) => html`<button type="button" class="link" onClick=${() => onZone(row.place)}>${row.name}</button>` },
    { title: "Hosts", isNumber: true, of: (row) => count(row.hosts) },
    { title: "GPUs running", ...gpus("running") },
    has("stopped") && { title: "GPUs stopped", ...gpus("stopped") },
    { title: "Spare", ...gpus("spare") },
    has("somebody") && { title: "Other tenants", ...gpus("somebody") },
    { title: "Free", ...gpus("free") },
    { title: "Not in plain service", isNumber: true, of: (row) => count(row.out) },
  ].filter(Boolean);
  return html`<h2>The same as a table</h2>
    <${Table} caption=${`GPUs of each ${tier.name}`} columns=${columns} rows=${rows} keyOf=${(row) => row.name} />`;
}

function Incidents({ cluster }) {
  const { answer, error } = useCall(cluster, "ListIncidents", INCIDENTS);
  return html`<h2>Recent incidents</h2>
    <${Problem} error=${error} />
    ${answer && html`<${IncidentTable} incidents=${answer.incidents ?? []} />`}
    <${Source} method="ListIncidents" body=${INCIDENTS} />`;
}
