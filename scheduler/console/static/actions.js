// What can be done to hosts, jobs and windows: always looked at first, by a dry run of the server.

import { call } from "./api.js";
import { count, counted, gpuHours, jobName, moment, words } from "./format.js";
import { Facts, html, JobLinks, Problem, useCall, useCluster, useEffect, useRef, useState } from "./ui.js";

const ROLES = ["viewer", "launcher", "submitter", "coordinator", "operator", "admin"];
const LIVE = ["JOB_STATE_QUEUED", "JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"];
const HOLDING = ["JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"];
const OUT = ["HOST_STATE_CORDONED", "HOST_STATE_DRAINING"];

const BROKEN = ["HOST_STATE_FAILED", "HOST_STATE_SUSPECT", "HOST_STATE_RETIRING"];
const LARGE_HOSTS = 64; // of a gang whose name is typed before it is stopped

/**
 * @typedef {{method: string, label: string, says?: string, hasReason?: boolean, isGrave?: boolean, isRare?: boolean,
 *   reasonField?: string, of?: (thing: any) => boolean, requestOf?: (thing: any) => any}} Action
 * `says`: what it does; `of`: whether it is offered for that thing; `hasReason`: whether it takes one; `isGrave`:
 * it cannot be taken back, or stops a gang; `isRare`: it is on the host's page alone; `requestOf`: what is sent besides the reason.
 */
function reports(signal) {
  return { method: "ReportHost", hasReason: true, requestOf: ({ name }) => ({ name, signal }), reasonField: "detail" };
}

/** @type {Action[]} */
const HOST_ACTIONS = [
  { method: "CordonHost", label: "Cordon", hasReason: true, of: (host) => !OUT.includes(host.state), says: "No gang begins on it any more; what runs on it goes on." },
  { method: "DrainHost", label: "Drain", hasReason: true, isGrave: true, of: (host) => !["HOST_STATE_DRAINING", "HOST_STATE_FAILED"].includes(host.state), says: "No gang begins on it, and the gang that runs on it leaves it: at its next checkpoint where it saves any." },
  { method: "UncordonHost", label: "Uncordon", hasReason: true, of: (host) => OUT.includes(host.state), says: "Gangs may begin on it again." },
  { ...reports("ticket"), isRare: true, label: "Send to repair", of: (host) => BROKEN.includes(host.state), says: "A repair ticket is open: it is out of service until it is reported repaired." },
  { ...reports("repaired"), label: "Repaired", of: (host) => [...BROKEN, "HOST_STATE_IN_REPAIR"].includes(host.state), says: "It is back in service: gangs may begin on it." },
  { ...reports("installed"), isRare: true, label: "RMA: replaced", isGrave: true, of: (host) => [...BROKEN, "HOST_STATE_IN_REPAIR", "HOST_STATE_RMA"].includes(host.state), says: "The machine went back to its maker and another stands in its place: its record begins anew." },
];
const JOB_ACTIONS = [
  { method: "HoldJob", label: "Hold", hasReason: true, of: (job) => !job.hold, says: "The scheduler passes over it until it is released. A gang that runs goes on." },
  { method: "ReleaseJob", label: "Release", of: (job) => Boolean(job.hold), says: "The scheduler considers it again." },
  { method: "RequeueJob", label: "Requeue", hasReason: true, isGrave: true, of: (job) => HOLDING.includes(job.state), says: "Its gang stops, and goes on from its newest checkpoint when it starts again; until then it waits at its old place in the queue." },
  { method: "CancelJob", label: "Cancel", hasReason: true, isGrave: true, of: () => true, says: "It ends: its gang stops, and its hosts are free. This cannot be taken back." },
];
const MOST_SHOWN = 6; // hosts of one dialog
const REMOVE_WINDOW = { method: "DeleteWindow", label: "Remove", hasReason: true, isGrave: true, says: "What is planned does not take place; what is open ends." };

/** Whether the caller of this console has that role, as far as the server has said so far. */
export function may(cluster, role) {
  return Boolean(cluster.caller) && ROLES.indexOf(cluster.caller.role) >= ROLES.indexOf(role);
}

/** `isShort`: without those that are rare, for a row of a table. */
export function HostActions({ cluster, host, isShort = false }) {
  return html`<${Actions} cluster=${cluster} role="operator" thing=${host} actions=${HOST_ACTIONS.filter((each) => each.of(host) && !(isShort && each.isRare))} preview=${hostAfter} price=${HostPrice} />`;
}

export function JobActions({ cluster, job }) {
  const { caller } = cluster;
  const isOwn = !job.user || job.user === caller?.name;
  if (!LIVE.includes(job.state) || !(isOwn || may(cluster, "coordinator"))) return null;
  return html`<${Actions} cluster=${cluster} role="submitter" thing=${job} actions=${JOB_ACTIONS.filter((each) => each.of(job))} preview=${jobAfter} price=${JobPrice} />`;
}

export function WindowActions({ cluster, planned }) {
  return html`<${Actions} cluster=${cluster} role="operator" thing=${planned} actions=${[REMOVE_WINDOW]} preview=${windowAfter} />`;
}

/** `thing`: with its name and etag as this page knows them; `preview`: facts of the server's answer. */
function Actions({ cluster, role, thing, actions, preview, price }) {
  useCluster(cluster);
  const [chosen, setChosen] = useState(null);
  if (!may(cluster, role) || !actions.length) return null;
  return html`
    <div class="buttons" role="group" aria-label=${`Change ${jobName(thing.name)}`}>
      ${actions.map((each) => html`<button key=${each.label} type="button" onClick=${() => setChosen({ action: each, requests: [requestFor(each, thing)] })}>${each.label}<span class="unseen"> ${jobName(thing.name)}</span></button>`)}
    </div>
    ${chosen && html`<${Confirm} key=${chosen.action.label} ...${chosen} title=${`${chosen.action.label} ${jobName(thing.name)}`} preview=${preview} price=${price} typed=${isLarge(chosen.action, thing) ? jobName(thing.name).split("/").at(-1) : ""} thing=${thing} cluster=${cluster} onClose=${() => setChosen(null)} />`}`;
}

function requestFor(action, thing) {
  if (action.requestOf) return action.requestOf(thing);
  return { name: thing.name, etag: thing.etag, ...(thing.uid && LIVE.includes(thing.state) && { uid: thing.uid }) };
}

function isLarge(action, thing) {
  return Boolean(action.isGrave) && HOLDING.includes(thing.state) && (thing.placement?.hostCount ?? 0) >= LARGE_HOSTS;
}

/** The same change of several hosts: looked at first as one, then made one after the other. */
export function BulkActions({ cluster, hosts, onDone }) {
  const [chosen, setChosen] = useState(null);
  const offered = HOST_ACTIONS.filter((each) => hosts.every((host) => each.of(host)));
  const choose = (action) => setChosen({ action, requests: hosts.map((host) => requestFor(action, host)) });
  return html`<div class="buttons" role="group" aria-label="Change all that are chosen">
      ${offered.map((each) => html`<button key=${each.label} type="button" onClick=${() => choose(each)}>${each.label}</button>`)}
      ${offered.length === 0 && html`<span class="quiet">Nothing can be done to all of these at once.</span>`}
    </div>
    ${chosen && html`<${Confirm} key=${chosen.action.label} ...${chosen} title=${`${chosen.action.label} ${counted(hosts.length, "host")}`} preview=${hostAfter} onClose=${() => { setChosen(null); onDone(); }} />`}`;
}

/** What it costs that the gang of this host leaves it, and where it would go. */
function HostPrice({ cluster, action, thing }) {
  const job = action.method === "DrainHost" && thing.block !== undefined && thing.job;
  return job && html`<${GangPrice} cluster=${cluster} name=${job} />`;
}

function GangPrice({ cluster, name }) {
  const { answer } = useCall(cluster, "ExplainJob", { name });
  const taken = (answer?.restart?.restartOptions ?? []).find((each) => each.taken);
  return taken && html`<${Facts} facts=${[
    ["If it left at once, the gang would go on by", words(taken.option, "RESTART_OPTION")],
    ["At a price of", gpuHours(taken.gpuHours)],
    ["Blocks that move", count(taken.movedBlocks)],
  ]} />`;
}

/** What stopping a gang costs, and who is next. */
function JobPrice({ cluster, action, thing, seen }) {
  const isStopping = action.isGrave && HOLDING.includes(thing.state);
  return isStopping && html`<${StopPrice} cluster=${cluster} action=${action} name=${thing.name} seen=${seen} />`;
}

function StopPrice({ cluster, action, name, seen }) {
  const now = useCall(cluster, "GetJob", { name }).answer;
  const { whatIf } = useCall(cluster, "ExplainJob", { name, suppose: [`${action.method === "CancelJob" ? "cancel" : "requeue"} ${name}`] }).answer ?? {};
  const hoursOf = (job, part) => (job?.goodput?.parts ?? []).find((each) => each.part === `GOODPUT_PART_${part}`)?.gpuHours ?? 0;
  return html`<${Facts} facts=${[
    ["Lost since its last checkpoint", now && html`<strong>${gpuHours(Math.max(0, hoursOf(seen, "REWORK") - hoursOf(now, "REWORK")))}</strong>${now.savedCheckpoint ? "" : ", assumed"}`],
    ["Hosts that it frees", count(now?.placement?.hostCount)],
    ["Starts on them at once", whatIf && (whatIf.starts?.length ? html`<${JobLinks} names=${whatIf.starts} />` : whatIf.state === "JOB_STATE_RUNNING" ? "it itself, again" : "nobody")],
  ]} />`;
}

function hostAfter(answer) {
  const host = answer.host ?? answer;
  return [
    ["It will be", words(host.state, "HOST_STATE")],
    ["It carries", host.job && (host.block === undefined ? `a spare of ${jobName(host.job)}` : `block ${count(host.block)} of ${jobName(host.job)}`)],
  ];
}

function jobAfter(job) {
  return [
    ["It will be", words(job.state, "JOB_STATE")],
    ["Held by", job.hold ? words(job.hold, "HOLD") : ""],
    ["Hosts then", LIVE.includes(job.state) && job.placement?.hostCount ? count(job.placement.hostCount) : ""],
    ["Submitted by", job.user],
  ];
}

function windowAfter(planned) {
  return [
    ["Kind", words(planned.kind, "WINDOW_KIND")],
    ["From", moment(planned.startTime)],
    ["To", moment(planned.endTime)],
    ["Hosts", count(planned.chosenHosts?.length)],
    ["Held now by gangs", planned.heldHosts ? html`${count(planned.heldHosts)}: <${JobLinks} names=${planned.heldBy} />` : ""],
  ];
}

/**
 * Says what would become of it, and does it when it is confirmed: once, however often the button is pressed,
 * for all presses are one request.
 */
function Confirm({ action, requests, title, preview, price = null, typed = "", thing = null, cluster = null, onClose }) {
  const dialog = useRef(null);
  const requestIds = useRef(requests.map(() => crypto.randomUUID()));
  const [name, setName] = useState("");
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState(null);
  const [reason, setReason] = useState("");
  const [isDoing, setIsDoing] = useState(false);
  useEffect(() => {
    dialog.current.showModal();
    Promise.all(requests.map((each) => call(action.method, { ...each, validateOnly: true }))).then(setSeen, (error) => setProblem(plain(error)));
  }, []);
  const act = async (event) => {
    event.preventDefault();
    setIsDoing(true);
    try {
      const said = action.hasReason && reason.trim() && { [action.reasonField ?? "reason"]: reason.trim() };
      for (const [at, each] of requests.entries()) {
        await call(action.method, { ...each, ...said, requestId: requestIds.current[at] });
      }
      onClose();
    } catch (error) {
      setProblem(plain(error));
      setIsDoing(error.code === "aborted");
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onClose=${onClose}>
    <form onSubmit=${act}>
      <h2 id="confirm-title">${title}</h2>
      <p>${action.says}</p>
      <${Problem} error=${problem} />
      ${seen && price && html`<${price} cluster=${cluster} action=${action} thing=${thing} seen=${seen[0]} />`}
      ${seen ? seen.slice(0, MOST_SHOWN).map((each, at) => html`${seen.length > 1 && html`<b>${requests[at].name}</b>`}<${Facts} facts=${preview(each)} />`) : !problem && html`<p class="quiet">Asking the server what would become of it.</p>`}
      ${action.hasReason && html`<p><label for="reason">Reason, for the log</label> <input id="reason" value=${reason} onInput=${(event) => setReason(event.target.value)} autocomplete="off" maxlength="200" /></p>`}
      ${seen?.length > MOST_SHOWN && html`<p class="quiet">and ${count(seen.length - MOST_SHOWN)} more</p>`}
      ${typed && html`<p><label for="typed">It is large: type its name, ${typed}</label> <input id="typed" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" spellcheck=${false} /></p>`}
      <div class="buttons">
        <button class=${action.isGrave ? "danger" : ""} disabled=${!seen || isDoing || name !== typed}>${title}</button>
        <button type="button" onClick=${() => dialog.current.close()}>Leave it</button>
      </div>
    </form>
  </dialog>`;
}

function plain(error) {
  if (error.code !== "aborted") return error;
  return { message: "It has changed since this page was drawn. Leave it, look again, and decide then." };
}

/** A maintenance window of hosts or domains, which the server looks at before it is made. */
export function NewWindow({ cluster }) {
  useCluster(cluster);
  const [fields, setFields] = useState({ name: "", hosts: "", from: "", hours: "4", leave: "WINDOW_LEAVE_WAIT" });
  const [chosen, setChosen] = useState(null);
  if (!may(cluster, "operator")) return null;
  const field = (name) => ({ id: `window-${name}`, value: fields[name], onInput: (event) => setFields({ ...fields, [name]: event.target.value }) });
  const plan = (event) => {
    event.preventDefault();
    const start = fields.from ? new Date(fields.from) : new Date(Date.now() + 1_000);
    const planned = {
      name: fields.name.trim(),
      kind: "WINDOW_KIND_MAINTENANCE",
      hosts: fields.hosts.split(/[\s,]+(?![^[]*\])/).filter(Boolean),
      startTime: start.toISOString(),
      endTime: new Date(start.getTime() + Number(fields.hours) * 3_600_000).toISOString(),
      leave: fields.leave,
    };
    setChosen(planned);
  };
  return html`
    <details class="plan"><summary>Plan maintenance</summary>
      <form class="search" onSubmit=${plan}>
        <label for="window-name">Name</label><input ...${field("name")} required autocomplete="off" />
        <label for="window-hosts">Hosts or domains</label><input ...${field("hosts")} placeholder="z0, z1-r[000-011]" required autocomplete="off" />
        <label for="window-from">From, local time (empty: now)</label><input type="datetime-local" ...${field("from")} />
        <label for="window-hours">Hours</label><input type="number" min="0.1" step="any" ...${field("hours")} required />
        <label for="window-leave">Gangs</label>
        <select ...${field("leave")}><option value="WINDOW_LEAVE_WAIT">run to their end</option><option value="WINDOW_LEAVE_MOVE">move to other hosts, where there are some</option><option value="WINDOW_LEAVE_REQUEUE">move, or are requeued</option></select>
        <button>Look at it</button>
      </form>
    </details>
    ${chosen && html`<${Confirm} key=${JSON.stringify(chosen)} action=${CREATE_WINDOW} requests=${[{ window: chosen }]} title=${`Plan ${chosen.name}`} preview=${windowAfter} onClose=${() => setChosen(null)} />`}`;
}

const CREATE_WINDOW = { method: "CreateWindow", label: "Plan", says: "No gang begins on these hosts that would not be over before it opens." };
