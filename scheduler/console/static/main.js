// The console: who looks, which page, and the stream that all pages follow.

import { html, render, useEffect, useRef, useState } from "./view.js";
import { call, keepToken, token } from "./api.js";
import { Cluster } from "./live.js";
import { Keys } from "./command.js";
import { HostPage } from "./host_page.js";
import { HostsPage } from "./hosts_page.js";
import { IncidentPage, IncidentsPage } from "./incidents_page.js";
import { JobPage } from "./job_page.js";
import { arrive, hasArrived, Login } from "./login.js";
import { MapPage } from "./map_page.js";
import { OverviewPage } from "./overview_page.js";
import { QueuePage } from "./queue_page.js";
import { place } from "./route.js";
import { SparesPage } from "./spares_page.js";
import { chooseTheme, isDark } from "./theme.js";
import { TimePage } from "./time_page.js";
import { TenantsPage } from "./tenants_page.js";
import { Problem, useCluster } from "./ui.js";

const PAGES = [
  ["overview", "Overview", OverviewPage],
  ["map", "Map", MapPage],
  ["queue", "Queue", QueuePage],
  ["incidents", "Incidents", IncidentsPage],
  ["hosts", "Hosts and links", HostsPage],
  ["spares", "Spares", SparesPage],
  ["tenants", "Tenants", TenantsPage],
  ["time", "Time", TimePage],
];
const STATUS = { gangs: 1, incidents: 1 };

// Pages of one thing, by the first word of the address: how many words follow, the title, and the page.
const THINGS = {
  job: [2, (names) => names.join("/"), (names, cluster) => html`<${JobPage} cluster=${cluster} name=${`tenants/${names[0]}/jobs/${names[1]}`} />`],
  host: [1, ([name]) => name, ([name], cluster) => html`<${HostPage} cluster=${cluster} name=${name} />`],
  incident: [1, ([version]) => `incident ${version}`, ([version], cluster) => html`<${IncidentPage} cluster=${cluster} version=${version} />`],
};

function App() {
  // null: not known yet, "out": a token is needed, "in": we may look, "log": at a log alone.
  const [session, setSession] = useState(null);
  const [problem, setProblem] = useState(null);
  const enter = async () => {
    try {
      const { server } = await call("GetStatus", STATUS);
      setProblem(null);
      setSession(server ? "in" : "log"); // a log is shown, and no server
    } catch (error) {
      const isRefused = ["unauthenticated", "permission_denied"].includes(error.code);
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
  const [[name, ...more], setParts] = useState(place().parts);
  const main = useRef(null);
  useEffect(() => {
    const ending = new AbortController();
    cluster.follow(ending.signal).catch(onLeave);
    return () => ending.abort();
  }, [cluster]);
  useEffect(() => {
    const follow = () => setParts(place().parts);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const thing = THINGS[name]?.[0] === more.length ? THINGS[name] : null;
  const [page, title, Page] = PAGES.find(([each]) => each === name) ?? PAGES[0];
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `muster: ${thing ? thing[1](more) : title}`;
    if (!isFirst.current) main.current.querySelector("h1")?.focus();
    isFirst.current = false;
  }, [`${name}/${more.join("/")}`]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.querySelector("h1")?.focus(); }}>Skip to the page</a>
    <header>
      <a class="brand" href="#/overview"><img src="icon.svg" alt="" width="20" height="20" /> muster</a>
      <nav aria-label="Pages"><ul>
        ${PAGES.map(([each, label]) => html`<li key=${each}><a href=${`#/${each}`} aria-current=${!thing && each === page ? "page" : undefined}>${label}</a></li>`)}
      </ul></nav>
      <${Keys} cluster=${cluster} pages=${PAGES} />
      <${Switches} />
      <${Freshness} cluster=${cluster} />
      ${token() && html`<${Looker} cluster=${cluster} /><button type="button" onClick=${() => onLeave()}>Sign out</button>`}
    </header>
    <main id="main" ref=${main}>
      ${thing
        ? html`<div key=${`${name}/${more.join("/")}`}>${thing[2](more, cluster)}</div>`
        : html`<${Page} key=${page} cluster=${cluster} />`}
    </main>`;
}

/** Whether what is shown is of now. */
function Freshness({ cluster }) {
  useCluster(cluster);
  const text = cluster.isLive ? `Live, version ${cluster.version}` : cluster.problem ? `Not live: ${cluster.problem}` : "Connecting";
  return html`<span class=${cluster.isLive ? "fresh" : "stale"} data-version=${cluster.version}>${text}</span>`;
}

/** Light or dark, and the zone of times. */
function Switches() {
  const [, setTurn] = useState(0);
  const zone = localStorage.getItem("muster.utc") ? "UTC" : "local";
  const turnZone = () => {
    if (zone === "UTC") localStorage.removeItem("muster.utc");
    else localStorage.setItem("muster.utc", "yes");
    location.reload();
  };
  return html`<div class="buttons" role="group" aria-label="Show">
    <button type="button" onClick=${turnZone}>${zone === "UTC" ? "UTC" : "Local time"}</button>
    <button type="button" onClick=${() => { chooseTheme(isDark() ? "light" : "dark"); setTurn((turn) => turn + 1); }}>${isDark() ? "Dark" : "Light"}</button>
  </div>`;
}

/** Who looks, as the server calls them. */
function Looker({ cluster }) {
  useCluster(cluster);
  return cluster.caller && html`<span class="quiet">${cluster.caller.name} (${cluster.caller.role})</span>`;
}

render(html`<${App} />`, document.getElementById("app"));
