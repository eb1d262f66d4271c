// The cluster as it is now: what GET /live has sent so far (scheduler/console/cluster_map.py).

import { bearer, CallError, errorOf, parts, request } from "./api.js";
import { parsed } from "./format.js";

export const NOBODY = 0; // slots of hosts that no job holds, and of those of jobs that we may not see
export const SOMEBODY = 1;
const SILENT_MS = 30_000; // the server says something every ten seconds
const LONGEST_WAIT_MS = 10_000;

/**
 * Everything by number of the host: `slots` of jobs, `blocks` of their gangs, `states`.
 * `jobs`: by slot. `isLive`: whether changes arrive. `caller`: who looks, {name, role, tenant}.
 */
export class Cluster {
  constructor() {
    this.version = -1;
    this.fabric = null;
    this.stateNames = [];
    this.jobs = new Map();
    this.slots = new Uint32Array(0);
    this.blocks = new Int32Array(0);
    this.states = new Uint8Array(0);
    this.isLive = false;
    this.problem = "";
    this.caller = null;
    /** @type {Map<string, number> | null} Of outermost domains, when a page asked. */
    this.busy = null;
    /** @type {Map<string, number> | null} What they carry of what they were built for. */
    this.carried = null;
    /** @type {Map<string, number> | null} */
    this.fits = null;
    this.listeners = new Set();
  }

  /** `listener(change)`; change.hosts: numbers of hosts that changed, null for all. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(change) {
    for (const listener of this.listeners) listener(change);
  }

  stateOf(host) {
    return this.stateNames[this.states[host]];
  }

  jobOf(host) {
    return this.jobs.get(this.slots[host]);
  }

  /** Take one frame. */
  take(buffer) {
    const sizes = new DataView(buffer);
    const length = sizes.getUint32(0, true);
    const count = sizes.getUint32(4, true);
    const head = parsed(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    let at = 8 + length;
    const column = (Kind) => {
      const made = new Kind(buffer, at, count);
      at += made.byteLength;
      return made;
    };
    this.version = head.version;
    if (head.kind === "snapshot") {
      this.fabric = head.fabric ?? this.fabric; // a recording says it once
      this.stateNames = head.states;
      this.jobs = new Map(head.jobs.map((job) => [job.slot, job]));
      this.slots = column(Uint32Array);
      this.blocks = column(Int32Array);
      this.states = column(Uint8Array);
      this.tell({ hosts: null, jobs: true });
      return;
    }
    const hosts = column(Uint32Array);
    const slots = column(Uint32Array);
    const blocks = column(Int32Array);
    const states = column(Uint8Array);
    for (const slot of head.gone ?? []) this.jobs.delete(slot);
    for (const job of head.jobs ?? []) this.jobs.set(job.slot, job);
    for (let i = 0; i < count; i += 1) {
      this.slots[hosts[i]] = slots[i];
      this.blocks[hosts[i]] = blocks[i];
      this.states[hosts[i]] = states[i];
    }
    this.tell({ hosts, jobs: Boolean(head.gone || head.jobs) });
  }

  /**
   * Follow the server until `signal`, while the page is seen; what breaks is begun again. A page in the
   * background has no stream: browsers open six connections to a server, and each stream is one of them.
   * Throws CallError when we may not look.
   */
  async follow(signal) {
    let waitMs = 500;
    while (!signal.aborted) {
      await seen(signal);
      try {
        await this.read(signal, () => {
          waitMs = 500;
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error.name === "AbortError" && document.hidden) continue;
        if (["unauthenticated", "permission_denied"].includes(error.code)) throw error;
        this.problem = error.name === "AbortError" ? "The server has fallen silent." : error.message;
      }
      this.isLive = false;
      this.tell({ hosts: new Uint32Array(0), jobs: false });
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    }
  }

  async read(signal, onFrame) {
    const ours = new AbortController();
    const stop = () => ours.abort();
    signal.addEventListener("abort", stop, { signal: ours.signal });
    addEventListener("pagehide", stop, { signal: ours.signal });
    const leave = () => document.hidden && stop();
    document.addEventListener("visibilitychange", leave, { signal: ours.signal });
    let watchdog = setTimeout(stop, SILENT_MS);
    try {
      const answer = await request("/live", { headers: bearer(), signal: ours.signal });
      if (!answer.ok) throw await errorOf(answer);
      this.caller = JSON.parse(answer.headers.get("muster-caller") ?? "null");
      for await (const [, frame] of parts(answer.body, 4, (view) => view.getUint32(0, true))) {
        clearTimeout(watchdog);
        watchdog = setTimeout(stop, SILENT_MS);
        if (!this.isLive) {
          this.isLive = true;
          this.problem = "";
        }
        if (frame.length) this.take(frame.buffer);
        else this.tell({ hosts: new Uint32Array(0), jobs: false });
        onFrame();
      }
      throw new CallError("network", "The server ended the stream.");
    } finally {
      clearTimeout(watchdog);
      ours.abort();
    }
  }
}

/** Once the page is seen, or `signal`. */
async function seen(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}
