// The map on two canvases: hosts and GPUs on one, what is pointed at on the other, so that moving the
// pointer paints no hosts.

import { coordinates, layout, roleOf } from "./geometry.js";
import { SOMEBODY } from "./live.js";
import { isOut, scheme } from "./palette.js";
import { onTheme } from "./theme.js";

const GAP = 0.18; // between GPUs, in units
const LEAST_CELL_PX = 3; // below that a host is painted as one box
const MOST_ZOOM = 60; // times the scale at which everything fits
const CLICK_PX = 4;
const PALE = 0.4; // of the colour between the GPUs of a host

export class MapCanvas {
  /**
   * `onPoint(host, gpu)`: -1 for none; `onOpen(host)`: somebody wants to see its job; `onHold(host)`: it is to stay pointed at. Listens until `close`.
   */
  constructor(base, overlay, cluster, { onPoint, onOpen, onHold }) {
    this.base = base;
    this.overlay = overlay;
    this.cluster = cluster;
    this.onPoint = onPoint;
    this.onOpen = onOpen;
    this.onHold = onHold;
    this.mode = "state";
    this.host = -1;
    this.gpu = -1;
    this.isHeld = false; // the host stays pointed at, wherever the mouse goes
    this.slot = 0; // of the job to outline besides, 0 for none
    this.view = null; // {scale, x, y}: pixels of the device a unit, and where the unit (0, 0) lies
    this.fabric = null;
    this.plan = null;
    this.scheme = null;
    this.pointers = new Map();
    this.moved = 0;
    this.due = 0;
    this.isAllDue = true;
    this.pending = new Set(); // hosts to paint
    const { signal } = (this.ending = new AbortController());
    const on = (target, kind, listener, options = {}) => {
      target.addEventListener(kind, listener, { signal, ...options });
    };
    on(overlay, "wheel", (event) => this.wheel(event), { passive: false });
    on(overlay, "pointerdown", (event) => this.down(event));
    on(overlay, "pointermove", (event) => this.move(event));
    on(overlay, "pointerup", (event) => this.up(event));
    on(overlay, "pointercancel", (event) => this.pointers.delete(event.pointerId));
    on(overlay, "pointerleave", (event) => event.pointerType === "mouse" && !this.isHeld && this.point(-1, -1));
    on(overlay, "keydown", (event) => this.key(event));
    onTheme(() => this.repaint(), signal);
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(overlay);
    this.unlisten = cluster.listen((change) => this.changed(change));
    this.resize();
  }

  close() {
    this.ending.abort();
    this.resizing.disconnect();
    this.unlisten();
    cancelAnimationFrame(this.due);
  }

  /** Paint everything at the next frame, with colours found anew. */
  repaint() {
    this.scheme = null;
    this.isAllDue = true;
    this.ask();
  }

  colourBy(mode) {
    this.mode = mode;
    this.repaint();
  }

  outline(slot) {
    this.slot = slot;
    this.ask();
  }

  changed({ hosts, jobs }) {
    if (hosts === null || (jobs && this.mode !== "state")) {
      this.repaint();
      return;
    }
    if (jobs) {
      // A gang that stops or goes on changes colour where it is.
      for (let host = 0; host < this.cluster.slots.length; host += 1) {
        if (this.cluster.slots[host] > SOMEBODY) this.pending.add(host);
      }
    }
    for (const host of hosts) this.pending.add(host);
    if (this.pending.size) this.ask();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.overlay.getBoundingClientRect();
    for (const canvas of [this.base, this.overlay]) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
    }
    this.ratio = ratio;
    this.plan = null;
    this.view = null;
    this.repaint();
  }

  ask() {
    if (!this.due) this.due = requestAnimationFrame(() => this.paint());
  }

  // --- painting ---

  paint() {
    this.due = 0;
    if (!this.cluster.fabric) return;
    if (this.fabric !== this.cluster.fabric || !this.plan) {
      this.fabric = this.cluster.fabric;
      this.plan = layout(this.fabric, this.base.width / this.base.height);
      this.isAllDue = true;
      if (this.host >= this.fabric.hosts.length) this.point(-1, -1);
      this.view = null;
    }
    this.view ??= this.fitting({ x: 0, y: 0, width: this.plan.width, height: this.plan.height });
    this.scheme ??= scheme(this.cluster, this.mode);
    const begin = performance.now();
    if (this.isAllDue) this.paintAll();
    else this.paintHosts(this.pending);
    this.paintMs = performance.now() - begin;
    this.pending.clear();
    this.isAllDue = false;
    this.paintOverlay();
  }

  paintAll() {
    const style = getComputedStyle(document.documentElement);
    this.ground = style.getPropertyValue("--map-ground").trim();
    this.ink = style.getPropertyValue("--ink").trim();
    const { width, height } = this.base;
    if (this.image?.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.colours = coloursOf([this.ground, ...this.scheme.fills]);
    this.pixels.fill(this.colours.full[0]);
    this.paintHosts(this.fabric.hosts.keys());
  }

  /**
   * Into an array of pixels, which is put on the canvas at once: as rectangles of a context 24,576 GPUs take
   * five times as long. What is drawn by lines and letters lies above all of them.
   */
  paintHosts(hosts) {
    const context = this.base.getContext("2d", { alpha: false });
    const { full, pale } = this.colours;
    const hasCells = this.view.scale >= LEAST_CELL_PX;
    for (const host of hosts) {
      if (!this.isSeen(host)) continue;
      if (!this.isAllDue) this.fillBox(host, -1, full[0]);
      const category = this.scheme.categoryOf(host) + 1; // after the ground
      // Paler between the GPUs of a gang, so that its host is seen as one from afar.
      if (!hasCells || !this.isSpare(host)) this.fillBox(host, 1, (hasCells ? pale : full)[category]);
      if (hasCells) this.fillCells(host, full[category]);
    }
    context.putImageData(this.image, 0, 0);
    this.paintMarks(context);
    this.paintNames(context);
  }

  /** A rectangle of whole pixels, as far as it lies on the canvas. */
  fill(left, top, width, height, colour) {
    const { pixels } = this;
    const stride = this.base.width;
    const right = Math.min(left + width, stride);
    const bottom = Math.min(top + height, this.base.height);
    const first = Math.max(left, 0);
    for (let y = Math.max(top, 0); y < bottom; y += 1) {
      for (let at = y * stride + first, end = y * stride + right; at < end; at += 1) pixels[at] = colour;
    }
  }

  isSpare(host) {
    return this.cluster.slots[host] > SOMEBODY && this.cluster.blocks[host] < 0;
  }

  /** The GPUs of a host: all of one size; a spare's are small. */
  fillCells(host, colour) {
    const { scale, x, y } = this.view;
    const { gpuColumns } = this.plan;
    const pitch = Math.max(2, Math.floor(this.plan.pitch * scale - 0.1));
    const gap = Math.max(1, Math.round(GAP * scale));
    const size = this.isSpare(host) ? Math.max(1, Math.round((pitch - gap) / 2)) : pitch - gap;
    const shift = Math.floor((pitch - gap - size) / 2);
    const left = Math.round(x + this.plan.x[host] * scale) + shift;
    const top = Math.round(y + this.plan.y[host] * scale) + shift;
    const gpus = this.plan.gpusOf(host);
    for (let gpu = 0; gpu < gpus; gpu += 1) {
      this.fill(left + (gpu % gpuColumns) * pitch, top + Math.floor(gpu / gpuColumns) * pitch, size, size, colour);
    }
  }

  /** A cross over what is out of service, so that colour is not all that tells it. */
  paintMarks(context) {
    if (this.view.scale < LEAST_CELL_PX) return;
    context.strokeStyle = this.ink;
    context.lineWidth = Math.max(1, this.view.scale * 0.16);
    context.beginPath();
    for (let host = 0; host < this.fabric.hosts.length; host += 1) {
      if (!isOut(this.cluster, host) || !this.isSeen(host)) continue;
      const { x, y, width, height } = this.boxOf(host);
      context.moveTo(x, y);
      context.lineTo(x + width, y + height);
      context.moveTo(x + width, y);
      context.lineTo(x, y + height);
    }
    context.stroke();
  }

  paintNames(context) {
    context.fillStyle = this.ink;
    context.textBaseline = "alphabetic";
    const write = (box, name, size, top) => {
      const x = this.view.x + box.x * this.view.scale;
      const y = this.view.y + top * this.view.scale;
      if (y < 0 || y > this.base.height + size) return;
      context.font = `${size}px system-ui, sans-serif`;
      context.fillText(name, Math.round(x), Math.round(y), box.width * this.view.scale);
    };
    const size = Math.max(11 * this.ratio, Math.min(16 * this.ratio, 2.2 * this.view.scale));
    for (const zone of this.plan.zones) {
      if (zone.width * this.view.scale > 24 * this.ratio) write(zone, zone.name, size, zone.y + zone.label - 0.7);
    }
  }

  paintOverlay() {
    const context = this.overlay.getContext("2d");
    context.clearRect(0, 0, this.overlay.width, this.overlay.height);
    const { slots, blocks } = this.cluster;
    const pointed = this.host < 0 ? 0 : slots[this.host];
    const slot = pointed > SOMEBODY ? pointed : this.slot;
    const job = this.cluster.jobs.get(slot);
    context.strokeStyle = this.ink;
    if (job) {
      const stage = pointed === slot && this.host >= 0 && blocks[this.host] >= 0 ? this.stageOf(job, this.host) : -1;
      const groups = [[], []]; // of other stages, of this one
      for (let host = 0; host < slots.length; host += 1) {
        if (slots[host] === slot && this.isSeen(host)) {
          const isSame = stage >= 0 && blocks[host] >= 0 && this.stageOf(job, host) === stage;
          groups[Number(isSame)].push(host);
        }
      }
      groups.forEach((hosts, isSame) => {
        context.lineWidth = (isSame ? 2.5 : 1) * this.ratio;
        context.beginPath();
        for (const host of hosts) this.around(context, host, context.lineWidth / 2);
        context.stroke();
      });
      this.paintStages(context, job, groups.flat());
    }
    if (this.host >= 0) {
      context.lineWidth = 3 * this.ratio;
      context.beginPath();
      this.around(context, this.host, 3 * this.ratio);
      context.stroke();
    }
  }

  /** The stage in every host of a gang, or its role, where there is room. */
  paintStages(context, job, hosts) {
    if (this.plan.hostWidth * this.view.scale < 26 * this.ratio) return;
    const size = Math.min(12 * this.ratio, this.plan.hostHeight * this.view.scale * 0.6);
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const host of hosts) {
      if (this.cluster.blocks[host] < 0) continue;
      const { x, y, width, height } = this.boxOf(host);
      const text = String(this.stageOf(job, host));
      context.fillStyle = this.ground;
      const half = context.measureText(text).width / 2 + 3 * this.ratio;
      context.fillRect(x + width / 2 - half, y + height / 2 - size * 0.65, 2 * half, size * 1.3);
      context.fillStyle = this.ink;
      context.fillText(text, x + width / 2, y + height / 2);
    }
  }

  stageOf(job, host) {
    const { role, axes, rank } = roleOf(job, this.cluster.blocks[host] * this.plan.gpusOf(host));
    const stage = coordinates(axes, rank).pp ?? 0;
    if (!role) return stage;
    return new Map(axes).get("pp") > 1 ? `${role} ${stage}` : role;
  }

  /** The host on the canvas, in pixels of the device. */
  boxOf(host) {
    const { scale, x, y } = this.view;
    return {
      x: x + this.plan.x[host] * scale,
      y: y + this.plan.y[host] * scale,
      width: this.plan.hostWidth * scale,
      height: this.plan.hostHeight * scale,
    };
  }

  fillBox(host, gap, colour) {
    const { x, y, width, height } = this.boxOf(host);
    const [x0, y0] = [Math.round(x), Math.round(y)];
    this.fill(x0, y0, Math.max(1, Math.round(x + width - gap) - x0), Math.max(1, Math.round(y + height - gap) - y0), colour);
  }

  around(context, host, by) {
    const { x, y, width, height } = this.boxOf(host);
    context.rect(x - by, y - by, width + 2 * by, height + 2 * by);
  }

  isSeen(host) {
    const { x, y, width, height } = this.boxOf(host);
    return x + width >= 0 && y + height >= 0 && x <= this.base.width && y <= this.base.height;
  }

  // --- the view ---

  fitting({ x, y, width, height }) {
    const scale = 0.98 * Math.min(this.base.width / width, this.base.height / height);
    return {
      scale,
      x: (this.base.width - width * scale) / 2 - x * scale,
      y: (this.base.height - height * scale) / 2 - y * scale,
    };
  }

  fit() {
    this.view = null;
    this.isAllDue = true;
    this.ask();
  }

  /** Show one zone, by its place among the zones. */
  showZone(place) {
    if (!this.plan) return;
    this.view = this.fitting(this.plan.zones[place]);
    this.isAllDue = true;
    this.ask();
  }

  zoom(factor, x = this.base.width / 2, y = this.base.height / 2) {
    if (!this.view) return;
    const whole = this.fitting({ x: 0, y: 0, width: this.plan.width, height: this.plan.height }).scale;
    const scale = Math.min(whole * MOST_ZOOM, Math.max(whole * 0.8, this.view.scale * factor));
    const by = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * by, y: y - (y - this.view.y) * by };
    this.keepInside();
  }

  pan(dx, dy) {
    if (!this.view) return;
    this.view = { ...this.view, x: this.view.x + dx, y: this.view.y + dy };
    this.keepInside();
  }

  /** Some of the map stays where it can be seen. */
  keepInside() {
    const { scale } = this.view;
    const keep = (at, size, most) => Math.min(most * 0.8, Math.max(most * 0.2 - size * scale, at));
    this.view.x = keep(this.view.x, this.plan.width, this.base.width);
    this.view.y = keep(this.view.y, this.plan.height, this.base.height);
    this.isAllDue = true;
    this.ask();
  }

  // --- pointer and keys ---

  place(event) {
    const box = this.overlay.getBoundingClientRect();
    return { x: (event.clientX - box.left) * this.ratio, y: (event.clientY - box.top) * this.ratio };
  }

  wheel(event) {
    event.preventDefault();
    const { x, y } = this.place(event);
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), x, y);
  }

  down(event) {
    this.overlay.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
    this.moved = 0;
  }

  move(event) {
    const at = this.place(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      if (!this.isHeld) this.pick(at);
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    this.moved += Math.hypot(at.x - before.x, at.y - before.y);
    if (others.length) {
      const [, other] = others[0];
      const factor = Math.hypot(at.x - other.x, at.y - other.y) / Math.hypot(before.x - other.x, before.y - other.y);
      this.zoom(factor, (at.x + other.x) / 2, (at.y + other.y) / 2);
      this.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
    } else if (this.moved > CLICK_PX * this.ratio) {
      this.pan(at.x - before.x, at.y - before.y);
    }
    this.pointers.set(event.pointerId, at);
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    if (this.moved <= CLICK_PX * this.ratio) this.click(this.place(event));
  }

  // A click holds the host under it, so that the mouse may go to its buttons; a second one on the
  // same host, or one beside all hosts, lets it go.
  click(at) {
    const held = this.isHeld ? this.host : -1;
    this.isHeld = false;
    this.pick(at);
    this.isHeld = this.host >= 0 && this.host !== held;
    this.onHold(this.isHeld ? this.host : -1);
  }

  /** Point at a host and stay there; -1 lets go. */
  hold(host) {
    if (this.isHeld === host >= 0 && (!this.isHeld || this.host === host)) return;
    this.isHeld = host >= 0;
    if (host >= 0) this.go(host);
  }

  pick({ x, y }) {
    if (!this.view) return;
    const { scale } = this.view;
    const [u, v] = [(x - this.view.x) / scale, (y - this.view.y) / scale];
    const { plan } = this;
    const isIn = (box, width, height) => u >= box.x && v >= box.y && u < box.x + width && v < box.y + height;
    const rack = plan.racks.find((box) => isIn(box, box.width + 1, box.height + 1));
    for (let host = rack?.first; rack && host < rack.first + rack.count; host += 1) {
      if (!isIn({ x: plan.x[host], y: plan.y[host] }, plan.hostWidth, plan.hostHeight)) continue;
      const column = Math.floor(u - plan.x[host]);
      const gpu = Math.floor(v - plan.y[host]) * plan.gpuColumns + column;
      this.point(host, gpu < plan.gpusOf(host) ? gpu : -1);
      return;
    }
    this.point(-1, -1);
  }

  point(host, gpu) {
    if (host === this.host && gpu === this.gpu) return;
    this.host = host;
    this.gpu = gpu;
    this.ask();
    this.onPoint(host, gpu);
  }

  key(event) {
    if (!this.plan || event.altKey || event.ctrlKey || event.metaKey) return;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const actions = {
      "+": () => this.zoom(1.5, ...this.middle()),
      "=": () => this.zoom(1.5, ...this.middle()),
      "-": () => this.zoom(1 / 1.5, ...this.middle()),
      0: () => this.fit(),
      Home: () => this.go(0),
      End: () => this.go(this.fabric.hosts.length - 1),
      Escape: () => {
        this.isHeld = false;
        this.onHold(-1);
        this.point(-1, -1);
      },
      Enter: () => this.host >= 0 && this.onOpen(this.host),
    };
    const action = steps[event.key] ? () => this.step(...steps[event.key]) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  middle() {
    if (this.host < 0) return [this.base.width / 2, this.base.height / 2];
    const { x, y, width, height } = this.boxOf(this.host);
    return [x + width / 2, y + height / 2];
  }

  /** Go to a host, which is shown. */
  go(host) {
    this.point(host, -1);
    if (!this.view) return;
    const { x, y, width, height } = this.boxOf(host);
    if (x < 0 || y < 0 || x + width > this.base.width || y + height > this.base.height) {
      this.pan(this.base.width / 2 - x, this.base.height / 2 - y);
    }
  }

  /** To the nearest host in a direction. */
  step(dx, dy) {
    if (this.host < 0) {
      this.go(0);
      return;
    }
    const { x, y } = this.plan;
    let best = -1;
    let least = Infinity;
    for (let host = 0; host < x.length; host += 1) {
      const [right, below] = [x[host] - x[this.host], y[host] - y[this.host]];
      const along = right * dx + below * dy;
      const aside = Math.abs(right * dy) + Math.abs(below * dx);
      if (along > 0.01 && along + 3 * aside < least) [best, least] = [host, along + 3 * aside];
    }
    if (best >= 0) this.go(best);
  }
}

/** Each fill as a pixel, and mixed with the first, which is the ground. */
function coloursOf(fills) {
  const canvas = new OffscreenCanvas(fills.length, 2);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = fills[0];
  context.fillRect(0, 0, fills.length, 2);
  fills.forEach((fill, at) => {
    context.fillStyle = fill;
    context.globalAlpha = 1;
    context.fillRect(at, 0, 1, 1);
    context.globalAlpha = PALE;
    context.fillRect(at, 1, 1, 1);
  });
  const pixels = new Uint32Array(context.getImageData(0, 0, fills.length, 2).data.buffer);
  return { full: pixels.subarray(0, fills.length), pale: pixels.subarray(fills.length) };
}
