// Where every host lies on the map: domains of the outermost tier side by side, in each its racks (domains
// of the innermost tier), in each its hosts, in each its GPUs. One unit is a GPU with the gap behind it.

const HOST_GAP = 0.35;
const RACK_GAP = 0.7;
const ZONE_GAP = 3;
const LABEL = 3.2; // height of the name above a zone

/** How many columns give `n` boxes of w x h the shape nearest to `aspect`, with few places left empty. */
function columns(n, w, h, aspect) {
  let best = 1;
  let least = Infinity;
  for (let cols = 1; cols <= n; cols += 1) {
    const rows = Math.ceil(n / cols);
    const shape = Math.abs(Math.log((cols * w) / (rows * h) / aspect));
    const waste = (cols * rows - n) / n;
    if (shape + waste < least) [best, least] = [cols, shape + waste];
  }
  return best;
}

/** Racks in a row of a zone, and zones in a row, with which all is painted largest in a canvas of this aspect. */
function largest(racks, zones, rackWidth, rackHeight, aspect) {
  let best = { scale: 0 };
  for (let perRow = 1; perRow <= racks; perRow += 1) {
    const width = perRow * rackWidth + ZONE_GAP;
    const height = Math.ceil(racks / perRow) * rackHeight + LABEL + ZONE_GAP;
    if (perRow > 1 && width > 4 * height) break;
    for (let zonesPerRow = 1; zonesPerRow <= zones; zonesPerRow += 1) {
      const scale = Math.min(aspect / (zonesPerRow * width), 1 / (Math.ceil(zones / zonesPerRow) * height));
      if (scale > best.scale) best = { scale, perRow, zonesPerRow };
    }
  }
  return best;
}

function firsts(sizes) {
  const starts = [0];
  for (const size of sizes) starts.push(starts.at(-1) + size);
  return starts;
}

/**
 * `fabric`: as the snapshot has it; `aspect`: of the canvas. Gives `x`, `y` of each host, what all hosts
 * have in common (`hostWidth`, `hostHeight`, `gpuColumns`), `zones` and `racks` as boxes with the hosts
 * first to first + count - 1, and the size of it all.
 */
export function layout(fabric, aspect) {
  const hosts = fabric.hosts.length;
  const most = Array.isArray(fabric.gpus) ? Math.max(...fabric.gpus) : fabric.gpus;
  const gpuColumns = columns(most, 1, 1, 2);
  const gpuRows = Math.ceil(most / gpuColumns);
  const hostWidth = gpuColumns + HOST_GAP;
  const hostHeight = gpuRows + HOST_GAP;
  const outer = fabric.tiers[0] ?? { name: "fabric", domains: [fabric.name], sizes: [hosts] };
  const inner = fabric.tiers.at(-1) ?? outer;
  const isFlat = inner === outer;
  const rackSizes = isFlat ? outer.sizes : inner.sizes;
  const rackStarts = firsts(rackSizes);
  const rackMost = Math.max(...rackSizes);
  const rackColumns = columns(rackMost, hostWidth, hostHeight, isFlat ? 1.4 : 1);
  const rackWidth = rackColumns * hostWidth + (isFlat ? 0 : RACK_GAP);
  const rackHeight = Math.ceil(rackMost / rackColumns) * hostHeight + (isFlat ? 0 : RACK_GAP);
  const zoneStarts = firsts(outer.sizes);

  const racksOf = [];
  let rack = 0;
  for (let zone = 0; zone < outer.sizes.length; zone += 1) {
    const from = rack;
    while (rack < rackSizes.length && rackStarts[rack] < zoneStarts[zone + 1]) rack += 1;
    racksOf.push([from, rack]);
  }
  const mostRacks = Math.max(...racksOf.map(([from, to]) => to - from));
  const { perRow, zonesPerRow } = largest(mostRacks, outer.sizes.length, rackWidth, rackHeight, aspect);
  const zoneWidth = perRow * rackWidth + ZONE_GAP;
  const zoneHeight = Math.ceil(mostRacks / perRow) * rackHeight + LABEL + ZONE_GAP;

  const x = new Float32Array(hosts);
  const y = new Float32Array(hosts);
  const zones = [];
  const racks = [];
  outer.sizes.forEach((size, zone) => {
    const left = (zone % zonesPerRow) * zoneWidth + ZONE_GAP / 2;
    const top = Math.floor(zone / zonesPerRow) * zoneHeight + ZONE_GAP / 2;
    const [from, to] = racksOf[zone];
    zones.push({
      name: outer.domains[zone], first: zoneStarts[zone], count: size,
      x: left, y: top, width: zoneWidth - ZONE_GAP, height: zoneHeight - ZONE_GAP, label: LABEL,
    });
    for (let at = from; at < to; at += 1) {
      const rackX = left + ((at - from) % perRow) * rackWidth;
      const rackY = top + LABEL + Math.floor((at - from) / perRow) * rackHeight;
      racks.push({
        name: isFlat ? outer.domains[zone] : inner.domains[at], first: rackStarts[at], count: rackSizes[at],
        x: rackX, y: rackY, width: rackWidth - RACK_GAP, height: rackHeight - RACK_GAP,
      });
      for (let host = 0; host < rackSizes[at]; host += 1) {
        x[rackStarts[at] + host] = rackX + (host % rackColumns) * hostWidth;
        y[rackStarts[at] + host] = rackY + Math.floor(host / rackColumns) * hostHeight;
      }
    }
  });
  return {
    x, y, zones, racks, gpuColumns,
    pitch: hostWidth / gpuColumns, // of GPUs at most
    hostWidth: hostWidth - HOST_GAP / 2,
    hostHeight: hostHeight - HOST_GAP / 2,
    width: zonesPerRow * zoneWidth,
    height: Math.ceil(outer.sizes.length / zonesPerRow) * zoneHeight,
    gpusOf: Array.isArray(fabric.gpus) ? (host) => fabric.gpus[host] : () => fabric.gpus,
  };
}

/** Name of the domain of each tier that has the host, outermost first. */
export function domainsOf(fabric, host) {
  return fabric.tiers.map((tier) => {
    let at = 0;
    let end = tier.sizes[0];
    while (host >= end) {
      at += 1;
      end += tier.sizes[at];
    }
    return tier.domains[at];
  });
}

/** The role that has a rank of the gang, "" of a gang that names none: the axes in which it counts, and its rank there. */
export function roleOf({ axes, roles = [] }, rank) {
  const own = roles.findLast(({ first }) => first <= rank);
  return own ? { role: own.name, axes: own.axes, rank: rank - own.first } : { role: "", axes, rank };
}

/** Name and axes of each role of a job as it is now: its last role, or all of a gang that names none, has the job's
 * number of replicas, whatever its file says. */
export function shapesOf(job) {
  const { roles = [], parallelism } = job.spec ?? {};
  const parts = roles.length ? roles : [{ name: "", parallelism }];
  return parts.map(({ name, parallelism: axes = {} }, number) => ({ name, axes: number === parts.length - 1 ? { ...axes, dp: job.dp } : axes }));
}

/** Coordinates of a rank on the axes of its job, which are given fastest first. */
export function coordinates(axes, rank) {
  let rest = rank;
  return Object.fromEntries(
    axes.map(([axis, size]) => {
      const at = rest % size;
      rest = Math.floor(rest / size);
      return [axis, at];
    }),
  );
}
