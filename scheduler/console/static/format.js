// Numbers, times and names as people read them.

const SI = ["", "k", "M", "G", "T", "P", "E"];

/** 1234567 -> "1,234,567". JSON has 64-bit numbers as text. */
export function count(value) {
  return Number(value ?? 0).toLocaleString("en");
}

/** Bytes in decimal units with three figures: "6.91 kB". */
export function bytes(value) {
  let size = Number(value ?? 0);
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < SI.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? size.toPrecision(3) : size} ${SI[unit]}B`;
}

export function percent(share, digits = 1) {
  return `${Number((100 * Number(share ?? 0)).toFixed(digits))} %`;
}

/** 1 -> "1 spare", 2048 -> "2,048 spares". */
export function counted(value, noun) {
  return `${count(value)} ${noun}${Number(value) === 1 ? "" : "s"}`;
}

/** A protobuf duration ("3.5s") in seconds. */
export function seconds(text) {
  return Number(String(text ?? "0s").replace(/s$/, ""));
}

/** A time span in the two largest units: "2 d 3 h". */
export function span(value) {
  const s = Math.max(0, value);
  if (s < 1) return s === 0 ? "0 s" : `${Number((s * 1000).toPrecision(3))} ms`;
  if (s < 60) return `${Number(s.toPrecision(s < 10 ? 3 : 2))} s`;
  /** @type {[number, string][]} */
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = units.findIndex(([size]) => s >= size);
  const [[large, first], next] = [units[at], units[at + 1]];
  const whole = Math.floor(s / large);
  const rest = next ? Math.floor((s - whole * large) / next[0]) : 0;
  return rest ? `${whole} ${first} ${rest} ${next[1]}` : `${whole} ${first}`;
}

/** How times are written here: in UTC, or in the zone of this machine. */
export function zone() {
  return localStorage.getItem("muster.utc") ? { timeZone: "UTC" } : {};
}

/** A moment with its zone and its distance from now. "" for none. */
export function moment(text) {
  if (!text) return "";
  const at = new Date(text);
  const away = (at.getTime() - Date.now()) / 1000;
  const whole = Math.max(1, Math.round(Math.abs(away)));
  const distance = away > 0 ? `in ${span(whole)}` : `${span(whole)} ago`;
  const isToday = at.toDateString() === new Date().toDateString();
  const written = at.toLocaleString("en-GB", { ...(!isToday && { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit", timeZoneName: "short", ...zone() });
  return `${written}, ${distance}`;
}

/** Seconds since 1970 as a moment on an axis of such a length. */
export function clockText(at, length) {
  /** @type {Intl.DateTimeFormatOptions} */
  const shown = length > 2 * 86_400 ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", ...(length < 600 && { second: "2-digit" }) };
  return new Date(at * 1000).toLocaleString("en-GB", { ...shown, ...zone() });
}

/** GPU-hours with their unit. */
export function gpuHours(value) {
  const hours = Number(value ?? 0);
  return `${hours >= 99.5 ? count(Math.round(hours)) : Number(hours.toPrecision(2))} GPU-hours`;
}

/** A constant of the API as words: JOB_STATE_QUEUED -> "queued". */
export function words(constant, prefix) {
  return (constant ?? `${prefix}_UNSPECIFIED`).slice(prefix.length + 1).toLowerCase().replaceAll("_", " ");
}

// What turns the order of the text that follows it, or ends a line.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** What others wrote, with what cannot be seen written out, as the command line does. */
export function legible(text) {
  return text.replace(UNSEEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** JSON of the server, every text in it legible. */
export function parsed(text) {
  return JSON.parse(text, (_, value) => (typeof value === "string" ? legible(value) : value));
}

/** tenants/T/jobs/N -> "T/N"; any other text as it is. */
export function jobName(resource) {
  const match = /^tenants\/([^/]+)\/jobs\/([^/]+)$/.exec(resource ?? "");
  return match ? `${match[1]}/${match[2]}` : resource;
}
