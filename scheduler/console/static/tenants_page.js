// Tenants: what each is promised, holds, waits for and has used.

import { count, moment, percent } from "./format.js";
import { html, JobLink, Source, Table, useCall, Waiting } from "./ui.js";

const BODY = { pageSize: 1000 };
const STATUS = { gangs: 1, incidents: 1 };

export function TenantsPage({ cluster }) {
  const state = useCall(cluster, "ListTenants", BODY);
  const status = useCall(cluster, "GetStatus", STATUS);
  return html`<h1 tabindex="-1">Tenants</h1>
    <div class="columns"><section>
    <${Waiting} state=${state}>${(answer) => html`<${Table} caption="Quotas and use" rows=${inTree(answer.tenants ?? [])} keyOf=${(each) => each.name} columns=${[
      { title: "Tenant", of: (each) => `${"\u2003".repeat(each.depth)}${each.name}` },
      { title: "Holds, GPUs", isNumber: true, of: (each) => count(each.heldGpus) },
      { title: "Guaranteed", isNumber: true, of: (each) => count(each.guaranteedGpus) },
      { title: "Limit", isNumber: true, of: (each) => (each.limitGpus === undefined ? "none" : count(each.limitGpus)) },
      { title: "Waits for, GPUs", isNumber: true, of: (each) => count(each.queuedGpus) },
      { title: "Weight", isNumber: true, of: (each) => count(each.weight) },
      { title: "Share of use", isNumber: true, of: (each) => percent(each.share) },
      { title: "Used, GPU-hours", isNumber: true, of: (each) => count(Math.round(each.usedGpuHours ?? 0)) },
      { title: "Kept together, hosts", isNumber: true, of: (each) => count(each.keptHosts) },
      { title: "Cells", of: (each) => (each.cells ?? []).map((cell) => `${cell.count} ${cell.tier}${cell.hosts ? ` of ${cell.hosts} hosts` : ""}`).join(", ") },
    ]} />`}<//>
    <${Source} method="ListTenants" body=${BODY} />
    </section><section>
    <${Waiting} state=${status}>${(answer) => html`<${Table} caption="Live jobs of each tenant" rows=${answer.tenants ?? []} keyOf=${(each) => each.tenant} columns=${[
      { title: "Tenant", of: (each) => each.tenant },
      { title: "Waiting", isNumber: true, of: (each) => count(each.queuedJobs) },
      { title: "Running", isNumber: true, of: (each) => count(each.runningJobs) },
      { title: "Stopped by a failure", isNumber: true, of: (each) => count(each.interruptedJobs) },
      { title: "Waits longest", of: (each) => html`<${JobLink} name=${each.oldestJob} />` },
      { title: "Since", isTime: true, of: (each) => moment(each.oldestCreateTime) },
      { title: "Why", isText: true, of: (each) => each.oldestReason ?? "" },
    ]} />`}<//>
    <${Source} method="GetStatus" body=${STATUS} />
    </section></div>`;
}

/** Parents come before their children; `depth`: how many stand above. */
function inTree(tenants) {
  const depths = new Map();
  return tenants.map((tenant) => {
    const depth = tenant.parent ? (depths.get(tenant.parent) ?? 0) + 1 : 0;
    depths.set(tenant.name, depth);
    return { ...tenant, depth };
  });
}
