// Colours of the map. Each way to colour gives every host a category, and each category a fill.

import { NOBODY, SOMEBODY } from "./live.js";
import { isDark } from "./theme.js";

const OUT = new Set(["failed", "in_repair", "rma", "new", "burn_in", "unknown"]);
const NOTED = new Set(["cordoned", "draining", "suspect", "retiring"]);

// In the order of the legend. `name`: of the property of style.css that has the colour, without --map-.
export const STATES = [
  { name: "running", label: "gang runs" },
  { name: "spare", label: "spare of a gang" },
  { name: "stopped", label: "gang stopped by a failure" },
  { name: "somebody", label: "held by another tenant" },
  { name: "free", label: "free" },
  { name: "suspect", label: "suspect" },
  { name: "cordoned", label: "cordoned" },
  { name: "draining", label: "draining" },
  { name: "retiring", label: "retiring" },
  { name: "new", label: "new, not tested" },
  { name: "burn_in", label: "in burn-in" },
  { name: "in_repair", label: "under repair" },
  { name: "rma", label: "goes back to its maker" },
  { name: "unknown", label: "agent not in yet" },
  { name: "failed", label: "failed" },
];
const PLACE = new Map(STATES.map(({ name }, place) => [name, place]));

/** The name of the category of a host by its state and use. */
export function useOf(cluster, host) {
  const state = cluster.stateOf(host);
  if (OUT.has(state) || NOTED.has(state)) return state;
  const slot = cluster.slots[host];
  if (slot === NOBODY) return "free";
  if (slot === SOMEBODY) return "somebody";
  if (cluster.blocks[host] < 0) return "spare";
  return cluster.jobs.get(slot)?.state === "interrupted" ? "stopped" : "running";
}

export function isOut(cluster, host) {
  return OUT.has(cluster.stateOf(host));
}

function property(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--map-${name}`).trim();
}

/**
 * A colour for each of many: hues a golden angle apart, with three degrees of lightness and two of
 * chroma, so that neighbours in the row differ in all of them, and no two of some hundreds are equal.
 */
function hue(number, isDark) {
  const lightness = (isDark ? [0.72, 0.58, 0.84] : [0.6, 0.46, 0.73])[number % 3];
  const chroma = [0.15, 0.09][Math.floor(number / 3) % 2];
  return `oklch(${lightness} ${chroma} ${((number * 137.508) % 360).toFixed(1)})`;
}

/**
 * How to colour. `categoryOf(host)`: a small number; `fills[category]`; `entries`: of the legend,
 * with the jobs or tenants that hold most hosts first. Uplinks by `cluster.busy`, what fits by `cluster.fits`:
 * Maps by outermost domain, which a page has asked for.
 */
export function scheme(cluster, mode) {
  if (mode === "uplinks") return busyScheme(cluster);
  if (mode === "fit") return fitScheme(cluster);
  if (mode === "state") {
    return {
      fills: STATES.map(({ name }) => property(name)),
      categoryOf: (host) => PLACE.get(useOf(cluster, host)),
      entries: STATES.map(({ label }, category) => ({ label, category })),
    };
  }
  const jobs = [...cluster.jobs.values()].sort((a, b) => a.slot - b.slot);
  const labelOf = mode === "job" ? (job) => `${job.tenant}/${job.shortName}` : (job) => job.tenant;
  const labels = [...new Set(mode === "job" ? jobs.map(labelOf) : jobs.map(labelOf).sort())];
  const common = ["free", "somebody", "failed"];
  const places = new Map(labels.map((label, place) => [label, place + common.length]));
  const bySlot = new Map(jobs.map((job) => [job.slot, places.get(labelOf(job))]));
  const numbers = mode === "job" ? jobs.map((job) => job.slot - SOMEBODY - 1) : labels.map((_, n) => n);
  return {
    fills: [...common.map(property), ...labels.map((_, at) => hue(numbers[at], isDark()))],
    categoryOf: (host) => {
      const slot = cluster.slots[host];
      if (slot > SOMEBODY) return bySlot.get(slot) ?? 1;
      if (slot === SOMEBODY) return 1;
      return isOut(cluster, host) ? 2 : 0;
    },
    entries: [
      ...labels.map((label) => ({ label, category: places.get(label) })),
      { label: "held by another tenant", category: 1 },
      { label: "free", category: 0 },
      { label: "out of service, not held", category: 2 },
    ],
  };
}

const BUSY = [[0.1, "below 10 %"], [0.3, "10 to 30 %"], [0.6, "30 to 60 %"], [1, "60 to 100 %"], [Infinity, "above: gangs wait for each other"]];

/** By how busy the gangs that run keep the uplink of the outermost domain. */
function busyScheme(cluster) {
  const degreeOf = outermost(cluster, (name) => {
    const carried = cluster.carried?.get(name) ?? 1;
    if (carried < 1) return BUSY.length + Number(!carried);
    const share = cluster.busy?.get(name) ?? 0;
    return BUSY.findIndex(([most]) => share < most);
  });
  return {
    fills: [...BUSY.map((_, degree) => property(`busy-${degree}`)), property("degraded"), property("down")],
    categoryOf: degreeOf,
    entries: [...BUSY.map(([, label]) => `uplink busy ${label}`), "uplink degraded", "uplink down"].map((label, category) => ({ label, category })),
  };
}

/** Free hosts by whether their outermost domain has room for the whole of a job. */
function fitScheme(cluster) {
  const roomOf = outermost(cluster, (name) => (cluster.fits?.get(name) ? 0 : 1));
  const taken = (host) => cluster.slots[host] !== NOBODY || cluster.stateOf(host) !== "healthy" && cluster.stateOf(host) !== "golden";
  return {
    fills: ["spare", "free", "somebody"].map(property),
    categoryOf: (host) => (taken(host) ? 2 : roomOf(host)),
    entries: ["free, and one such job fits into its domain", "free, in a domain without room for it", "held, or out of service"].map((label, category) => ({ label, category })),
  };
}

/** What `of` says of the outermost domain of a host, asked once for each. */
function outermost({ fabric }, of) {
  const tier = fabric.tiers[0] ?? { domains: [fabric.name], sizes: [fabric.hosts.length] };
  const values = new Uint8Array(fabric.hosts.length);
  let first = 0;
  tier.sizes.forEach((size, place) => {
    values.fill(of(tier.domains[place]), first, first + size);
    first += size;
  });
  return (host) => values[host];
}
