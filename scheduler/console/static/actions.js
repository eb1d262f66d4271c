// What can be done to hosts, jobs and windows: always looked at first, by a dry run of the server.

import { call } from "./api.js";
import { count, jobName, moment, words } from "./format.js";
import { Facts, html, JobLinks, Problem, useCluster, useEffect, useRef, useState } from "./ui.js";

const ROLES = ["viewer", "launcher", "submitter", "coordinator", "operator", "admin"];
const LIVE = ["JOB_STATE_QUEUED", "JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"];
const HOLDING = ["JOB_STATE_RUNNING", "JOB_STATE_INTERRUPTED"];
const OUT = ["HOST_STATE_CORDONED", "HOST_STATE_DRAINING"];

/** `says`: what it does; `of`: whether it is offered for that thing; `hasReason`: whether it takes one. */
const HOST_ACTIONS = [
  { method: "CordonHost", label: "Cordon", hasReason: true, of: (host) => !OUT.includes(host.state), says: "No gang begins on it any more; what runs on it goes on." },
  { method: "DrainHost", label: "Drain", hasReason: true, of: (host) => host.state !== "HOST_STATE_DRAINING", says: "No gang begins on it, and the gang that runs on it leaves it: at its next checkpoint where it saves any." },
  { method: "UncordonHost", label: "Uncordon", hasReason: true, of: (host) => OUT.includes(host.state), says: "Gangs may begin on it again." },
];
const JOB_ACTIONS = [
  { method: "HoldJob", label: "Hold", hasReason: true, of: (job) => !job.hold, says: "The scheduler passes over it until it is released. A gang that runs goes on." },
  { method: "ReleaseJob", label: "Release", of: (job) => Boolean(job.hold), says: "The scheduler considers it again." },
  { method: "RequeueJob", label: "Requeue", hasReason: true, of: (job) => HOLDING.includes(job.state), says: "Its gang stops, and goes on from its newest checkpoint when it starts again; until then it waits at its old place in the queue." },
  { method: "CancelJob", label: "Cancel", hasReason: true, of: () => true, says: "It ends: its gang stops, and its hosts are free. This cannot be taken back." },
];
const REMOVE_WINDOW = { method: "DeleteWindow", label: "Remove", hasReason: true, says: "What is planned does not take place; what is open ends." };

/** Whether the caller of this console has that role, as far as the server has said so far. */
export function may(cluster, role) {
  return Boolean(cluster.caller) && ROLES.indexOf(cluster.caller.role) >= ROLES.indexOf(role);
}

export function HostActions({ cluster, host }) {
  return html`<${Actions} cluster=${cluster} role="operator" thing=${host} actions=${HOST_ACTIONS.filter((each) => each.of(host))} preview=${hostAfter} />`;
}

export function JobActions({ cluster, job }) {
  if (!LIVE.includes(job.state)) return null;
  return html`<${Actions} cluster=${cluster} role="submitter" thing=${job} actions=${JOB_ACTIONS.filter((each) => each.of(job))} preview=${jobAfter} />`;
}

export function WindowActions({ cluster, planned }) {
  return html`<${Actions} cluster=${cluster} role="operator" thing=${planned} actions=${[REMOVE_WINDOW]} preview=${windowAfter} />`;
}

/** `thing`: with its name and etag as this page knows them; `preview`: facts of the server's answer. */
function Actions({ cluster, role, thing, actions, preview }) {
  useCluster(cluster);
  const [chosen, setChosen] = useState(null);
  if (!may(cluster, role) || !actions.length) return null;
  const request = { name: thing.name, etag: thing.etag, ...(thing.uid && LIVE.includes(thing.state) && { uid: thing.uid }) };
  return html`
    <div class="buttons" role="group" aria-label=${`Change ${jobName(thing.name)}`}>
      ${actions.map((each) => html`<button key=${each.method} type="button" onClick=${() => setChosen({ action: each, request })}>${each.label}<span class="unseen"> ${jobName(thing.name)}</span></button>`)}
    </div>
    ${chosen && html`<${Confirm} key=${chosen.action.method} ...${chosen} title=${`${chosen.action.label} ${jobName(thing.name)}`} preview=${preview} onClose=${() => setChosen(null)} />`}`;
}

function hostAfter(host) {
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
function Confirm({ action, request, title, preview, onClose }) {
  const dialog = useRef(null);
  const requestId = useRef(crypto.randomUUID());
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState(null);
  const [reason, setReason] = useState("");
  const [isDoing, setIsDoing] = useState(false);
  useEffect(() => {
    dialog.current.showModal();
    call(action.method, { ...request, validateOnly: true }).then(setSeen, (error) => setProblem(plain(error)));
  }, []);
  const act = async (event) => {
    event.preventDefault();
    setIsDoing(true);
    try {
      await call(action.method, { ...request, ...(action.hasReason && reason.trim() && { reason: reason.trim() }), requestId: requestId.current });
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
      ${seen ? html`<${Facts} facts=${preview(seen)} />` : !problem && html`<p class="quiet">Asking the server what would become of it.</p>`}
      ${action.hasReason && html`<p><label for="reason">Reason, for the log</label> <input id="reason" value=${reason} onInput=${(event) => setReason(event.target.value)} autocomplete="off" maxlength="200" /></p>`}
      <div class="buttons">
        <button disabled=${!seen || isDoing}>${title}</button>
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
    ${chosen && html`<${Confirm} key=${JSON.stringify(chosen)} action=${CREATE_WINDOW} request=${{ window: chosen }} title=${`Plan ${chosen.name}`} preview=${windowAfter} onClose=${() => setChosen(null)} />`}`;
}

const CREATE_WINDOW = { method: "CreateWindow", label: "Plan", says: "No gang begins on these hosts that would not be over before it opens." };
