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
  return `${(100 * Number(share ?? 0)).toFixed(digits)} %`;
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

/** A moment in local time, with its distance from now. "" for none. */
export function moment(text) {
  if (!text) return "";
  const at = new Date(text);
  const away = (at.getTime() - Date.now()) / 1000;
  const whole = Math.max(1, Math.round(Math.abs(away)));
  const distance = away > 0 ? `in ${span(whole)}` : `${span(whole)} ago`;
  const isToday = at.toDateString() === new Date().toDateString();
  const written = at.toLocaleString("en-GB", { ...(!isToday && { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit" });
  return `${written}, ${distance}`;
}

/** A constant of the API as words: JOB_STATE_QUEUED -> "queued". */
export function words(constant, prefix) {
  return (constant ?? `${prefix}_UNSPECIFIED`).slice(prefix.length + 1).toLowerCase().replaceAll("_", " ");
}

/** tenants/T/jobs/N -> "T/N"; any other text as it is. */
export function jobName(resource) {
  const match = /^tenants\/([^/]+)\/jobs\/([^/]+)$/.exec(resource ?? "");
  return match ? `${match[1]}/${match[2]}` : resource;
}
