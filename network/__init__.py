"""The backend network switch by switch, and what routing and collectives make of a placement.

Enters: a fabric, and a gang on hosts. Leaves: switches and cables (`links`), what failures leave of
them (`links_without`), bandwidth proved by maximum flow (`proofs`), and the busiest link of a step
and the time that it costs: `route(links(fabric), flows_of(fabric, request, hosts), routing, seed)`.
`collectives`: what NCCL and MSCCL are told. `step_tasks` and `step_simulation`: a step as
single messages. docs/fabric.md says what is modelled, what is not.
Nothing here places: it stands on `placement`, which knows nothing of it.
"""
