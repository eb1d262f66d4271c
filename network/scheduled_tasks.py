"""An all-reduce as it is written for MSCCL, as tasks: each message waits for those that brought
what it sends.

The step's own exchanges have the bytes of all messages of a group at once; here they go in the
order of the schedule, so that rounds and branches are seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from network.collectives.msccl import axis_program
from network.step_tasks import PIECES, Exchange, StepTasks, Task
from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric
from placement.workload.request import Request
from placement.workload.traffic import groups_of


@with_gang_view
def scheduled_tasks(fabric: Fabric, request: Request, hosts: Sequence[int]) -> StepTasks:
    """Return the tasks of one axis' all-reduce, by all of its groups at once, with the bytes of a
    step, in as many pieces one after the other as a step's exchanges; nothing is computed. Each
    channel is an axis of its own, as it has connections of its own.

    Raises: BadInput as `axis_program`.
    """
    per_host = request.ranks_per_host(fabric.gpus_per_host)
    program = axis_program(request, per_host)
    host_by_rank = np.repeat(np.asarray(hosts, dtype=np.int64), per_host)
    axis, sent, tasks = program.traffic.axis, program.messages(), list[Task]()
    each_bytes = program.payload_bytes / program.chunks / PIECES
    for ranks in groups_of(np.arange(len(host_by_rank)), program.traffic):
        for piece in range(PIECES):
            arrived: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
            for message in sent:
                ends = ranks[[message.src, message.dst]]
                late = fabric.latency_between(host_by_rank[ends[:1]], host_by_rank[ends[1:]])
                exchange = Exchange(
                    *(f"{axis} {message.channel}", ends, ends[:1], ends[1:]),
                    *(np.array([message.count * each_bytes]), np.array([1])),
                    latency_s=float(late[0]),
                )
                chunks = range(message.first, message.first + message.count)
                before = {task for chunk in chunks for task in arrived[message.src, chunk]}
                for chunk in chunks:
                    arrived[message.dst, chunk].append(len(tasks))
                if piece:  # behind its like on the same connection
                    before.add(len(tasks) - len(sent))
                tasks.append(Task(int(ends[0]), 0.0, exchange, 1.0, sorted(before)))
    return StepTasks(tasks, host_by_rank, 1)
