// Ctrl-K: to any page, job or host by a part of its name; and what the keys do.

import { count, jobName } from "./format.js";
import { html, useEffect, useRef, useState } from "./view.js";

const MOST = 12;
const KEYS = [["Ctrl K, or /", "find a page, a job or a host"], ["?", "show these keys"], ["g then o, m, q, i, h, s, t", "overview, map, queue, incidents, hosts, spares, time"], ["arrows, + - 0, Enter", "on the map: from host to host, zoom, open"], ["space", "on the page Time: play and pause"], ["Escape", "close this, or let a host go"]];
const PAGE_OF = { o: "overview", m: "map", q: "queue", i: "incidents", h: "hosts", s: "spares", t: "time" };

/** What has the words in its name: [label, kind, address], what begins with them first. */
export function found(cluster, pages, text) {
  const wanted = text.trim().toLowerCase();
  const all = [
    ...pages.map(([name, label]) => [label, "page", `#/${name}`]),
    ...[...cluster.jobs.values()].map((job) => [jobName(job.name), "job", `#/job/${jobName(job.name).split("/").map(encodeURIComponent).join("/")}`]),
    ...(cluster.fabric?.hosts ?? []).map((name) => [name, "host", `#/host/${encodeURIComponent(name)}`]),
  ];
  const hits = all.filter(([label]) => label.toLowerCase().includes(wanted));
  const rank = ([label]) => (label.toLowerCase().startsWith(wanted) ? 0 : 1);
  return { hits: hits.sort((a, b) => rank(a) - rank(b)).slice(0, MOST), all: hits.length };
}

/** Listens to the keys of the whole console, and shows what they open. */
export function Keys({ cluster, pages }) {
  const [shown, setShown] = useState("");
  const isGoing = useRef(false);
  useEffect(() => {
    const press = (event) => {
      const isTyping = event.target.closest?.("input, select, textarea");
      if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        setShown("find");
      } else if (isTyping || event.ctrlKey || event.altKey || event.metaKey) {
        return;
      } else if (isGoing.current) {
        isGoing.current = false;
        if (PAGE_OF[event.key]) location.hash = `/${PAGE_OF[event.key]}`;
      } else if (event.key === "g") {
        isGoing.current = true;
      } else if (event.key === "/" || event.key === "?") {
        event.preventDefault();
        setShown(event.key === "/" ? "find" : "keys");
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const close = () => setShown("");
  return html`
    <button type="button" class="find" onClick=${() => setShown("find")}>Find <kbd>Ctrl K</kbd></button>
    ${shown === "find" && html`<${Finder} cluster=${cluster} pages=${pages} onClose=${close} />`}
    ${shown === "keys" && html`<${Shown} label="Keys" onClose=${close}><h2>Keys</h2>
      <dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <button type="button" onClick=${close}>Close</button><//>`}`;
}

function Shown({ label, onClose, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} aria-label=${label} onClose=${onClose}>${children}</dialog>`;
}

function Finder({ cluster, pages, onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { hits, all } = found(cluster, pages, text);
  const open = (hit) => {
    if (!hit) return;
    onClose();
    [, , location.hash] = hit;
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") open(hits[at]);
    else if (step) setAt((at + step + hits.length) % Math.max(1, hits.length));
    else return;
    event.preventDefault();
  };
  return html`<${Shown} label="Find" onClose=${onClose}>
    <label for="find" class="unseen">A part of the name of a page, a job or a host</label>
    <input id="find" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${hits.length ? `found-${at}` : undefined} placeholder="Page, job or host" value=${text} autofocus autocomplete="off" spellcheck=${false} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${press} />
    <ul id="found" role="listbox" aria-label="Found">
      ${hits.map((hit, place) => html`<li key=${hit[2]} id=${`found-${place}`} role="option" aria-selected=${place === at} onClick=${() => open(hit)}><span>${hit[0]}</span><span class="quiet">${hit[1]}</span></li>`)}
    </ul>
    <p class="quiet small" role="status">${hits.length < all ? `${count(all)} have this in their name` : hits.length ? "" : `Nothing is called so: ${text}`}</p>
  <//>`;
}
