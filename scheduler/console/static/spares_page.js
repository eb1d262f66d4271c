// Spares of each zone: how many hosts may fail, how often that is too few, and what one more buys.

import { count, percent, seconds, span } from "./format.js";
import { Badge, Facts, html, JobLink, Source, Table, useCall, Waiting } from "./ui.js";

const BODY = { pageSize: 1000 };

export function SparesPage({ cluster }) {
  const state = useCall(cluster, "ListSpares", BODY);
  return html`<h1 tabindex="-1">Spares</h1>
    <${Waiting} state=${state}>${(answer) => html`
      <${Facts} facts=${[
        ["Failures a 1,000 host-days", Number(answer.failuresPer1000HostDays ?? 0).toFixed(2)],
        ["Mean repair", answer.meanRepairDuration ? span(seconds(answer.meanRepairDuration)) : ""],
        ["Failures seen", count(answer.failures)],
        ["Repairs seen", count(answer.repairs)],
        ["Time with too few spares is to be below", answer.epsilon ? percent(answer.epsilon, 2) : ""],
      ]} />
      <div class="columns"><section><${Table} caption="Spares of each domain" rows=${answer.zones ?? []} keyOf=${(zone) => zone.domain} columns=${[
        { title: "Domain", of: (zone) => zone.domain },
        { title: "Verdict", of: verdictOf },
        { title: "Hosts of gangs", isNumber: true, of: (zone) => count(zone.gangHosts) },
        { title: "May fail at once", isNumber: true, of: (zone) => count(zone.held) },
        { title: "Target", isNumber: true, of: (zone) => count(zone.target) },
        { title: "Whole racks", isNumber: true, of: (zone) => count(zone.wholeRacks) },
        { title: "Of one job alone", isNumber: true, of: (zone) => count(zone.own) },
        { title: "Lent", isNumber: true, of: (zone) => count(zone.lent) },
        { title: "Free", isNumber: true, of: (zone) => count(zone.free) },
        { title: "Out by failure", isNumber: true, of: (zone) => count(zone.down) },
        { title: "Time with too few", isNumber: true, of: (zone) => percent(zone.shortShare, 3) },
        { title: "With one more", isNumber: true, of: (zone) => percent(zone.shortShareNext, 3) },
        { title: "One more saves, GPU-hours a year", isNumber: true, of: (zone) => count(Math.round(zone.savedGpuHoursPerYear ?? 0)) },
      ]} /></section>
      <section><${Table} caption="Spares by domain and job" empty="No job holds spares." rows=${holdersOf(answer.zones ?? [])} columns=${[
        { title: "Domain", of: (row) => row.domain },
        { title: "Job", of: (row) => html`<${JobLink} name=${row.job} />` },
        { title: "Spares", isNumber: true, of: (row) => count(row.spares) },
        { title: "As", of: (row) => row.as },
      ]} /></section></div>`}
    <//>
    <${Source} method="ListSpares" body=${BODY} />`;
}

function verdictOf({ target = 0, held = 0 }) {
  return target > held ? html`<${Badge} kind="warn" icon="triangle-alert">${count(target - held)} short<//>` : html`<${Badge} kind="good" icon="circle-check">enough<//>`;
}

function holdersOf(zones) {
  return zones.flatMap(({ domain, holders = [], borrowers = [] }) => [
    ...holders.map((each) => ({ domain, as: "holder", ...each })),
    ...borrowers.map((each) => ({ domain, as: "borrower", ...each })),
  ]);
}
