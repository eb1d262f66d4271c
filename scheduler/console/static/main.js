// The console: who looks, which page, and the stream that all pages follow.

import { html, render, useEffect, useRef, useState } from "./view.js";
import { call, keepToken, token } from "./api.js";
import { Cluster } from "./live.js";
import { HostsPage } from "./hosts_page.js";
import { JobPage } from "./job_page.js";
import { arrive, hasArrived, Login } from "./login.js";
import { MapPage } from "./map_page.js";
import { QueuePage } from "./queue_page.js";
import { SparesPage } from "./spares_page.js";
import { TimePage } from "./time_page.js";
import { TenantsPage } from "./tenants_page.js";
import { Problem, useCluster } from "./ui.js";

const PAGES = [
  ["map", "Map", MapPage],
  ["queue", "Queue", QueuePage],
  ["hosts", "Hosts and links", HostsPage],
  ["spares", "Spares", SparesPage],
  ["tenants", "Tenants", TenantsPage],
  ["time", "Time", TimePage],
];
const NO_SERVICE = ["http_404", "http_405"]; // where a log is shown, and nothing else
const STATUS = { gangs: 1, incidents: 1 };

/** The page of the address, as [name, ...arguments]. */
function place() {
  return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
}

function App() {
  // null: not known yet, "out": a token is needed, "in": we may look, "log": at a log alone.
  const [session, setSession] = useState(null);
  const [problem, setProblem] = useState(null);
  const enter = async () => {
    try {
      await call("GetStatus", STATUS);
      setProblem(null);
      setSession("in");
    } catch (error) {
      const isRefused = ["unauthenticated", "permission_denied"].includes(error.code);
      if (NO_SERVICE.includes(error.code)) {
        setSession("log");
        return;
      }
      setProblem(error.code === "unauthenticated" && !token() ? null : error);
      setSession(isRefused ? "out" : "away");
    }
  };
  const begin = async () => {
    try {
      if (hasArrived()) keepToken(await arrive());
    } catch (error) {
      leave(error);
      return;
    }
    enter();
  };
  useEffect(() => {
    begin();
  }, []);
  useEffect(() => {
    if (session !== "away") return undefined;
    const timer = setTimeout(enter, 2_000); // the server may be starting
    return () => clearTimeout(timer);
  }, [session, problem]);
  const leave = (error = null) => {
    keepToken("");
    setProblem(error);
    setSession("out");
  };
  if (session === "in") return html`<${Console} onLeave=${leave} />`;
  if (session === "log") return html`<header><span class="brand">muster</span></header><main id="main"><${TimePage} isAlone=${true} /></main>`;
  if (session === "out") return html`<${Login} problem=${problem} onToken=${(text) => { keepToken(text); enter(); }} />`;
  return html`<main><h1>muster</h1><${Problem} error=${problem} /><p class="quiet">Asking the server.</p></main>`;
}

function Console({ onLeave }) {
  const kept = useRef(null);
  kept.current ??= new Cluster();
  const cluster = kept.current;
  const [[name, ...more], setPlace] = useState(place());
  const main = useRef(null);
  useEffect(() => {
    const ending = new AbortController();
    cluster.follow(ending.signal).catch(onLeave);
    return () => ending.abort();
  }, [cluster]);
  useEffect(() => {
    const follow = () => setPlace(place());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const isJob = name === "job" && more.length === 2;
  const [page, title, Page] = PAGES.find(([each]) => each === name) ?? PAGES[0];
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `muster: ${isJob ? more.join("/") : title}`;
    if (!isFirst.current) main.current.querySelector("h1")?.focus();
    isFirst.current = false;
  }, [location.hash]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.querySelector("h1")?.focus(); }}>Skip to the page</a>
    <header>
      <span class="brand">muster</span>
      <nav aria-label="Pages"><ul>
        ${PAGES.map(([each, label]) => html`<li key=${each}><a href=${`#/${each}`} aria-current=${!isJob && each === page ? "page" : undefined}>${label}</a></li>`)}
      </ul></nav>
      <${Freshness} cluster=${cluster} />
      ${token() && html`<${Looker} cluster=${cluster} /><button type="button" onClick=${() => onLeave()}>Sign out</button>`}
    </header>
    <main id="main" ref=${main}>
      ${isJob
        ? html`<${JobPage} key=${more.join("/")} cluster=${cluster} name=${`tenants/${more[0]}/jobs/${more[1]}`} />`
        : html`<${Page} key=${page} cluster=${cluster} />`}
    </main>`;
}

/** Whether what is shown is of now. */
function Freshness({ cluster }) {
  useCluster(cluster);
  const text = cluster.isLive ? `Live, version ${cluster.version}` : cluster.problem ? `Not live: ${cluster.problem}` : "Connecting";
  return html`<span class=${cluster.isLive ? "fresh" : "stale"} data-version=${cluster.version}>${text}</span>`;
}

/** Who looks, as the server calls them. */
function Looker({ cluster }) {
  useCluster(cluster);
  return cluster.caller && html`<span class="quiet">${cluster.caller.name} (${cluster.caller.role})</span>`;
}

render(html`<${App} />`, document.getElementById("app"));
