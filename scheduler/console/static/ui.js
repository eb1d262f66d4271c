// What the pages are made of.

import { html, useEffect, useRef, useState } from "./view.js";
import { asCurl, call } from "./api.js";
import { jobName, words } from "./format.js";

export { html, useEffect, useRef, useState };

const AGAIN_MS = 2_000; // between two calls of one page, however often the log moves
const IDLE_MS = 15_000; // after which a page asks again although nothing changed: time alone changes estimates

export function jobHref(resource) {
  const [tenant, name] = jobName(resource).split("/");
  return name ? `#/job/${encodeURIComponent(tenant)}/${encodeURIComponent(name)}` : "";
}

/** A job by its resource name; "(hidden)" and what is no job stay text. */
export function JobLink({ name }) {
  const href = jobHref(name ?? "");
  return href ? html`<a href=${href}>${jobName(name)}</a>` : html`${name ?? ""}`;
}

const SEVERITIES = { failed: "bad", rma: "bad", in_repair: "warn", suspect: "warn", retiring: "warn", cordoned: "warn", draining: "warn", healthy: "good", golden: "good" };
const STATE_ICONS = { failed: "circle-x", rma: "circle-x", in_repair: "wrench", suspect: "triangle-alert", retiring: "triangle-alert", cordoned: "circle-pause", draining: "circle-pause", healthy: "circle-check", golden: "circle-check" };

/** One of the icons of vendor/, in the colour of the text. */
export function Icon({ name }) {
  return html`<i class=${`icon ${name}`} aria-hidden="true"></i>`;
}

/** A word in a colour: good, warn, bad or quiet. */
export function Badge({ kind, icon, children }) {
  return html`<span class=${`badge ${kind}`}>${icon && html`<${Icon} name=${icon} />`}${children}</span>`;
}

/** The state of a host as a word, a colour and an icon. */
export function HostState({ state }) {
  const name = words(state, "HOST_STATE").replaceAll(" ", "_");
  return html`<${Badge} kind=${SEVERITIES[name] ?? "quiet"} icon=${STATE_ICONS[name] ?? "circle-dashed"}>${name.replaceAll("_", " ")}<//>`;
}

export function HostLink({ name }) {
  return html`<a href=${`#/host/${encodeURIComponent(name)}`}>${name}</a>`;
}

export function HostLinks({ names }) {
  return (names ?? []).map((name, at) => html`${at ? ", " : ""}<${HostLink} key=${name} name=${name} />`);
}

/** Names with commas between them, as links where they are jobs. */
export function JobLinks({ names }) {
  return (names ?? []).map((name, at) => html`${at ? ", " : ""}<${JobLink} key=${name} name=${name} />`);
}

/** Render again at changes of the cluster, twice a second at most. */
export function useCluster(cluster) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    const turn = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        setTurn((before) => before + 1);
      }, 500);
    };
    const end = cluster.listen(turn);
    turn(); // it may have changed between this page's first picture and now
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [cluster]);
}

/**
 * The answer of a method, asked again when the cluster has changed and somebody sees the page.
 * `answer` is null until the first one came; `error` is of the last try. `isPartial(answer)`: whether the server
 * still works on it, so that it is asked again soon.
 */
export function useCall(cluster, method, body, isPartial = (_) => false) {
  const [state, setState] = useState({ answer: null, error: null });
  const key = `${method} ${JSON.stringify(body)}`;
  useEffect(() => {
    const ending = new AbortController();
    let [timer, version, askedAt, isAsking, isAwaited] = [0, -1, 0, false, false];
    setState({ answer: null, error: null });
    const ask = async () => {
      timer = 0;
      if (isAsking || document.hidden) return;
      [isAsking, version, askedAt] = [true, cluster.version, Date.now()];
      try {
        const answer = await call(method, body, ending.signal);
        isAwaited = isPartial(answer);
        setState({ answer, error: null });
      } catch (error) {
        if (!ending.signal.aborted) setState((before) => ({ ...before, error }));
      }
      isAsking = false;
      if (cluster.version !== version || isAwaited) soon();
    };
    const soon = () => {
      if (!ending.signal.aborted) timer ||= setTimeout(ask, Math.max(0, askedAt + AGAIN_MS - Date.now()));
    };
    const unlisten = cluster.listen(() => cluster.version !== version && soon());
    const idle = setInterval(soon, IDLE_MS);
    document.addEventListener("visibilitychange", soon, { signal: ending.signal });
    ask();
    return () => {
      ending.abort();
      unlisten();
      clearTimeout(timer);
      clearInterval(idle);
    };
  }, [cluster, key]);
  return state;
}

/** Why something is not shown. */
export function Problem({ error }) {
  return error && html`<p class="problem" role="alert">${error.message}</p>`;
}

/** What stands in the place of an answer that has not come. */
export function Waiting({ state, children }) {
  return html`
    <${Problem} error=${state.error} />
    ${state.answer ? children(state.answer) : !state.error && html`<p class="quiet">Asking the server.</p>`}
  `;
}

function compare(a, b) {
  return typeof a === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

function kindOf({ isNumber, isText, isTime }) {
  return isNumber ? "number" : isText ? "text" : isTime ? "when" : "";
}

/** Roles are spelled out, for on a phone rows are blocks, which would take them away.
 * `columns`: {title, of(row), isNumber, isText: sentences, isTime, by(row): what it is sorted by}; `empty`: what to say
 * where there are no rows; `below(row)`: what opens under a row, if anything. */
export function Table({ caption, columns, rows: given, keyOf, empty = "None.", below }) {
  const [sorted, setSorted] = useState({ title: "", sign: 1 });
  const { by } = columns.find((each) => each.title === sorted.title) ?? {};
  const rows = by ? [...given].sort((a, b) => sorted.sign * compare(by(a), by(b))) : given;
  const head = (each) => (each.by
    ? html`<button type="button" class="link" onClick=${() => setSorted({ title: each.title, sign: sorted.title === each.title ? -sorted.sign : each.isNumber ? -1 : 1 })}>${each.title}<span aria-hidden="true">${sorted.title === each.title ? (sorted.sign > 0 ? " ↑" : " ↓") : ""}</span></button>`
    : each.title);
  const order = (each) => (each.by && sorted.title === each.title ? (sorted.sign > 0 ? "ascending" : "descending") : undefined);
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  return html`
    <div class="scroller" role="region" aria-label=${caption} tabindex="0">
      <table role="table">
        <caption>${caption}</caption>
        <thead role="rowgroup"><tr role="row">${columns.map((each) => html`<th key=${each.title} role="columnheader" scope="col" aria-sort=${order(each)} class=${kindOf(each)}>${head(each)}</th>`)}</tr></thead>
        <tbody role="rowgroup">
          ${rows.map((row, at) => html`
            <tr key=${keyOf ? keyOf(row) : at} role="row">
              ${columns.map((each, column) => (column
                ? html`<td key=${each.title} role="cell" class=${kindOf(each)} data-title=${each.title}>${each.of(row)}</td>`
                : html`<th key=${each.title} role="rowheader" scope="row">${each.of(row)}</th>`))}
            </tr>
            ${below?.(row) && html`<tr role="row" class="below"><td role="cell" colspan=${columns.length}>${below(row)}</td></tr>`}`)}
        </tbody>
      </table>
    </div>`;
}

/** Terms and values in a row. */
export function Facts({ facts }) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** The call behind what is shown, to be made from a command line. */
export function Source({ method, body }) {
  return html`<details class="source"><summary>The call behind this: ${method}</summary><code>${asCurl(method, body)}</code></details>`;
}

/** Pages of a list: asks for more of them. `sizes`: how many rows a page has. */
export function More({ token, onMore, shown }) {
  return token
    ? html`<p><button type="button" onClick=${onMore}>Show more</button> <span class="quiet">${shown} shown</span></p>`
    : null;
}
