"""Right input of every format, from which wrong input is made."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from importers.jobs.draft import Tool
from scheduler.core import JobState, State
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    HostMoved,
    HostSignalled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    TenantsLoaded,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.files import fabrics
from scheduler.wire.lists import listing
from tests.build import fabric, fabric_spec, flat, spec

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
FORMATS_PAGE: Final = ROOT / "docs" / "fabric-formats.md"


def _example(name: str) -> str:
    return (EXAMPLES / name).read_text()


YAML: Final = (
    'a: 1\nb: [1, 2.5, "x"]\nc: {d: true, e: null}\n',
    "- &x {a: 1}\n- *x\n- |\n  text\n  more\n- >\n  folded\n",
    "? a\n: b\n",
    "--- # one\na: !!str 1\n...\n",
    "'k': \"v\\n\\u00e9\"\n2: 0x10\n3: .inf\n",
)
JOBS: Final = (
    *map(_example, ("small.yaml", "llama3-405b.yaml", "deepseek-v3.yaml", "moe.yaml")),
    "name: a\nparallelism: {tp: 8, dp: 4}\ntraffic: {dp: 10}\nspares: 2%\npriority: 3\n"
    "time_limit_s: 60\ntenant: a\nlabels: {team: nlp}\nobjective: spread\nspread_alpha: 0.5\n"
    "compute_time_s: 3.2\ncollectives: {dp: hierarchical}\nconstraints:\n  max_zones: 1\n"
    "  same: rack\n  hosts: {gpu: h100}\n  avoid: {zone: [b, 'eval-*']}\n  near: c\n",
    "name: a\nroles:\n  - {name: t, parallelism: {tp: 8, dp: 2}, sends: {w: 5}, same: rack}\n"
    "  - {name: w, parallelism: {tp: 8, pp: 2}, within: {pp: rack}, segment: 2,\n"
    "     beside: {zone: [t]}, avoid: {rack: [t]}}\n",
)
FABRICS: Final = (
    *map(_example, ("fabric-irregular.yaml", "fabric-128-hosts.yaml")),
    fabrics.dump(fabric()),
    fabrics.dump(flat(4, 2)),
    "name: x\nkind: infiniband\ngpus_per_host: 8\nnic_gbps: 400\nscale_up_gbps: 900\n"
    "labels: {z0: {gpu: h100}, z0-h1: {disk: nvme}}\n"
    "tiers: [{name: zone, count: 2, oversubscription: 7}, {name: host, count: 4}]\n",
)
TENANTS: Final = (
    _example("tenants.yaml"),
    "tenants:\n  - {name: a, guaranteed_gpus: 16, cells: [{tier: rack, count: 1}]}\n  - {name: b}\n"
    "default: b\n",
)
WINDOWS: Final = (
    # With hosts of the small fabric.
    _example("windows.yaml")
    .replace("[000-011]", "[0-1]")
    .replace("48", "2")
    .replace("[z2]", "[z1]"),
    "windows:\n"
    "  - {name: a, kind: maintenance, hosts: ['z0-r[0-1]-h0', z1], start: +1m, end: +2h}\n"
    "  - {name: b, kind: reservation, count: 2, tenant: default, jobs: ['eval-*', c],\n"
    "     start: 2026-11-21T06:00+01:00, duration: 1d12h, leave: move, reason: a demo}\n",
)
HEALTH: Final = (
    _example("health.yaml"),
    "signals: {thermal: note, ecc-correctable: [{count: 5, within_h: 24, then: suspect}]}\n"
    "xids: {94: fatal, 63: application}\nsuspect: {clear_h: 2}\ngolden: {clean_days: 30}\n"
    "burn_in: {after_repair: true, early_life_days: 3}\nlemons: {action: rma, at_least: 2}\n",
)
DCGM: Final = (
    '{"z0-r0-h0": {"fields": {"0": {"DCGM_FI_DEV_XID_ERRORS": 79,\n'
    '  "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1}}}, "z0-r0-h1": {"fields": {}}}\n',
    '{"z1-r0-h0": {"body": {"Overall Health": {"value": "Warning"},\n "GPU": {"children": {"0":'
    ' {"children": {"Errors": {"children": {"PCIe": {"value": "Warning"}}}}}}}}}}\n',
)
SLURM_NODES: Final = (
    "NodeName=z0-r0-h0 Arch=x86_64 State=IDLE+DRAIN Reason=disk is full [root@2026-11-20]\n"
    "NodeName=z0-r0-h1 State=DOWN*\n",
    "STATE NODELIST\nidle z0-r0-h[0-1]\ndown* z1-r0-h0\n",
    '{"nodes": [{"name": "z0-r0-h0", "state": ["IDLE", "DRAIN"], "reason": "bad"}]}\n',
    '{"sinfo": [{"nodes": {"nodes": ["z0-r0-h0"]}, "node": {"state": ["DOWN"]},\n'
    '  "reason": {"description": "gone"}}]}\n',
)
AUTH: Final = (
    'tokens:\n  - {id: "1f0c9a2e", name: ci, role: submitter, tenant: vision,\n'
    f'     run_as: [alice, "*"], expires: 2027-01-31, sha256: "{"0a" * 32}"}}\n'
    "certificates:\n  - {san: head-1.example.org, name: launcher, role: operator}\n"
    '  - {common_name: ada, role: viewer, tenant: "*"}\n',
    "oidc:\n  issuer: https://sso.example.org/realms/lab\n  client_id: muster\n  user: sub\n"
    "  scopes: [openid, groups]\n  rules:\n"
    "    - {claim: realm_access.roles, contains: vision, role: submitter, tenant: vision,\n"
    "       run_as: [bob]}\n"
    "    - {claim: staff, equals: true, role: operator}\n",
)
SERVERS: Final = (
    "listen: 127.0.0.1:7443\nstore: sqlite:///muster.db\nfabric: roce-24k\npolicy: easy\n"
    "assumed_limit_h: 12.5\ndrain_s: 5\nsnapshot_every: 1000\nkeep_log_days: 7\n",
)
BUSY: Final = (
    "z0-r0-h0\nz0-r[0-1]-h[0-1]  # a rack\n\nz1-r0-h1\n",
    "z[0-1]-r[0,1]-h[0-1]\n",
)
HOSTLISTS: Final = ("z[0-1]-r[0,1]-h[0-1]", "a,b[1-3,7],c[01-10]x[1-2]")
OLD: Final = ("z0-r0-h0 slots=8\nz0-r0-h1\n# spare\nz1-r[0-1]-h0\n",)
OVERLAYS: Final = (
    "name: lab\nkind: roce\ngpus_per_host: 8\nnic_gbps: 400\n"
    "scale_up_gbps: 3600\ntiers:\n  - name: zone\n    oversubscription: 7\n    domains:\n"
    '      zone1: {holds: "rack[1-2]"}\n      zone2: {holds: rack3, oversubscription: 4}\n'
    "  - {name: rack}\n  - {name: host}\n",
)
FAILURES: Final = (
    "time_s,host,state,cause\n10,z0-r0-h0,down,gpu-lost\n20,z0-r0-h0,up,\n30,z1-r0-h0,down,x\n",
)
FILTERS: Final = (
    'state = RUNNING AND labels.team = "nlp"',
    "NOT (name = eval-* OR priority >= 5) AND labels:team",
    "tenant != 'a' AND attempt > 0 AND uid = uid-a",
)
CONDITIONS: Final = (
    *("cordon z0", "drain z0-r0-h0", "uncordon z1-r1-h1", "fail z1", "repair z0", "cancel b"),
    *("end a", "requeue a", "priority -3", "limit 90m"),
)
RECIPES: Final = (
    "from nemo.collections import llm\n\ndef recipe(nodes: int = 4):\n"
    '    recipe = llm.llama3_70b.pretrain_recipe(dir="/c", num_nodes=nodes, num_gpus_per_node=8)\n'
    "    recipe.trainer.strategy.tensor_model_parallel_size = 4\n"
    "    recipe.trainer.strategy.pipeline_model_parallel_size = 4\n"
    "    recipe.trainer.strategy.virtual_pipeline_model_parallel_size = 5\n"
    "    recipe.data.global_batch_size = 128\n    recipe.data.micro_batch_size = 1\n"
    "    return recipe\n",
    "def llama3_8b():\n    return Trainer.Config(\n"
    "        training=TrainingConfig(local_batch_size=2, seq_len=4096),\n"
    "        parallelism=ParallelismConfig(tensor_parallel_degree=2),\n    )\n",
)
STEP_TABLES: Final = (
    "id,gpu,gpus,gpus_per_node,network_gbps_per_gpu,layers,hidden,ffn,heads,kv_heads,vocab,seq,"
    "experts,topk,expert_ffn,params_b,tp,pp,vp,cp,ep,dp,micro_batch,global_batch,precision,"
    "fsdp_or_zero,recompute\n"
    "dense,H100,16,8,400,32,4096,14336,32,8,128256,8192,,,,8,2,2,2,1,1,4,1,16,bf16,zero1,full\n"
    "moe,H100,8,8,,16,1024,2048,16,16,32000,4096,8,2,2048,,1,1,,1,4,8,1,8,fp8,,\n"
    "racks,GB200,8,4,400,8,1024,4096,8,8,32000,4096,,,,,1,1,,1,1,8,1,8,bf16,fsdp ici 4,none\n",
)
CALIBRATIONS: Final = (
    "fabric: lab\nrates: {H100: {bf16: 0.94, fp8: 1.05}}\n"
    "goodput:\n  scale-up: 0.83\n  nic: 0.92\n  zone: 0.7\nmeasured: {nic: {error: 0.01}}\n",
)
NCCL_TESTS: Final = (
    "# Collective test starting: all_reduce_perf\n"
    "#  Rank  0 Group  0 Pid   1 on  z0-r0-h0 device  0 [0x1b] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid   2 on  z0-r0-h1 device  0 [0x1b] NVIDIA H100\n"
    "     1048576        262144     float     sum      -1    60.50   17.33   30.33      0\n"
    "    16777216       4194304     float     sum      -1    201.1   83.43  146.00    N/A\n"
    "# Avg bus bandwidth    : 88.1\n",
)
TRAINING_LOGS: Final = (
    " iteration        1/     100 | elapsed time per iteration (ms): 1200.5 | loss: 1.1E+01\n"
    " iteration        2/     100 | elapsed time per iteration (ms): 1,100.0 | loss: 1.0E+01\n",
    "samples | elapsed time per iteration (s): 2.25 |\n",
    "Training epoch 0, iteration 1/9 | train_step_timing in s: 3.5 | consumed_samples: 8\n",
    "[titan] \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[34mtps: 1,234  \x1b[36mmfu: 5%\n",
)
IMPORTS: Final[dict[Tool, Sequence[str]]] = {
    Tool.MEGATRON: (
        "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048\n"
        "--vocab-size 50257 --micro-batch-size 1 --global-batch-size 1536 --bf16\n"
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --sequence-parallel\n",
        "#!/bin/bash\nGPUS=8\nNODES=${SLURM_NNODES:-1}\n"
        "LAUNCH=(--nproc_per_node $GPUS --nnodes $NODES)\n"
        "ARGS=(\n  --num-layers 4  # few\n  --hidden-size 512 --num-attention-heads 8\n)\n"
        'MORE="--micro-batch-size 1 \\\n  --global-batch-size 8 --bf16"\n'
        'torchrun ${LAUNCH[@]} pretrain.py "${ARGS[@]}" $MORE \\\n'
        "  --seq-length 128 --vocab-size 1000 --swiglu --num-experts 8 --moe-router-topk 2 \\\n"
        '  --expert-model-parallel-size 2 --moe-layer-freq "([0]*1+[1]*3)" 2>&1 | tee log\n',
    ),
    Tool.TORCHTITAN: (
        '[model]\nname = "llama3"\nflavor = "8B"\n\n[training]\nlocal_batch_size = 2\n'
        "seq_len = 8192\n\n[parallelism]\ndata_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n"
        "pipeline_parallel_degree = 1\ncontext_parallel_degree = 1\n\n"
        '[activation_checkpoint]\nmode = "full"\n',
    ),
    Tool.DEEPSPEED: (
        '{\n  "train_batch_size": 16,\n  "train_micro_batch_size_per_gpu": 1,\n'
        '  "bf16": {"enabled": true},\n'
        '  "zero_optimization": {"stage": 3, "mics_shard_size": 8}\n}\n',
    ),
    Tool.ACCELERATE: (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
        "fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}\n",
        "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
        "deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 4}\n",
    ),
    Tool.MAXTEXT: (
        "base_config: base.yml\nmodel_name: llama3.1-70b\nici_fsdp_parallelism: 8\n"
        "dcn_fsdp_parallelism: -1\nper_device_batch_size: 2\nmax_target_length: 8192\n"
        "remat_policy: full\nquantization: fp8\n",
    ),
}


PHILLY: Final = {
    "status": "Pass",
    "vc": "a",
    "jobid": "application_1_2",
    "user": "b",
    "submitted_time": "2017-10-09 07:01:55",
    "attempts": [
        {
            "start_time": "2017-10-09 07:02:00",
            "end_time": "2017-10-09 08:02:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
        }
    ],
}

SACCT = {
    **{"job_id": 7, "user": "ann", "account": "nlp", "allocation_nodes": 2},
    "state": {"current": ["FAILED"]},
    "time": {
        **{"submission": 1772359200, "start": 1772359500, "end": 1772366700, "elapsed": 7200},
        "limit": {"set": True, "infinite": False, "number": 1560},
    },
    "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 16}]},
}


def traces() -> dict[str, Sequence[str]]:
    """Return sample traces by format. A format without a sample fails a test."""
    job = '{"submit_s": 0, "run_s": 60.5, "parallelism": {"tp": 8, "dp": 2}, "traffic": {"dp": 10}}'
    return {
        "swf": (
            "; Version: 2.2\n; UnixStartTime: 1000\n; MaxProcs: 128\n;\n"
            "1 0 10 60 8 -1 -1 8 120 -1 1 1 1 -1 1 1 -1 -1\n"
            "2 5 0 12.5 4 0.7 1024 4 86400 1 1 62 1 1 -1 1 1 1\n",
        ),
        "philly-csv": (
            "timestamp,duration,num_gpus,gpu_time,cluster\n0,60,8,480,a\n5.5,100,16,1600,b\n",
        ),
        "philly-json": (json.dumps([PHILLY, PHILLY | {"attempts": []}], indent=1),),
        "helios": (
            "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
            "duration,queue\n7,u1,vc1,16,64,2,COMPLETED,2020-04-01 10:00:00,2020-04-01 10:01:00,"
            "2020-04-01 11:01:00,3600,60\n8,u1,vc1,0,4,1,FAILED,2020-04-01 10:00:00,,,,\n",
        ),
        "acme": (
            "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
            "duration,queue,gpu_time\n5,u1,2,16,64,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,"
            "2023-03-01 08:00:10+08:00,2023-03-01 08:00:18+08:00,8,10,128\n",
        ),
        "pai": (
            "j1,worker,4,Terminated,100.0,160.5,600.0,29.3,25.0,V100\n"
            "j1,ps,1,Running,100.0,,600.0,29.3,,\n",
        ),
        "gavel": (
            "A3C\tpython3 a.py\t-n\t1\t1168\t30.5\t4\n"
            "CycleGAN\tpython3 a.py\tdata\t-n\t1\t1168\t4\t1\t-1.0\t30\n",
        ),
        "alibaba-spot": (
            "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
            "duration,job_type\n7,13,A10,20,1,1,0,2764799,HP\n8,57,A100,15,0.5,94,958,717,Spot\n",
        ),
        "muri": (
            "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
            "iteration_time,resource_time_0,priority\n0,8,1500,10956,gpt2,4,5095000,91,437,0.6,0\n",
        ),
        "tiresias": (
            "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
            "0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n",
        ),
        "mystous": (
            "pod-1,task,P1,ns-1,T1,2023-11-08 12:15:00+00:00,2023-12-16 00:45:00+00:00,4,37 days\n"
            "pod-2,task,P1,ns-1,,2023-11-08 12:15:00+00:00,2023-11-22 02:15:00+00:00,8,13 days\n",
        ),
        "slurm-sacct": (
            "JobID|User|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES\n"
            "123_4|ann|nlp|gpu|CANCELLED by 7|2026-03-01T10:00:00|2026-03-01T10:05:00|"
            "2026-03-01T12:05:00|02:00:00|1-02:00:00|cpu=64,gres/gpu=16,gres/gpu:a100=16\n"
            "123_4.batch||||COMPLETED|2026-03-01T10:00:00|2026-03-01T10:05:00|Unknown|1:0||\n",
            json.dumps({"meta": {"jobs": 1}, "jobs": [SACCT, SACCT | {"job_id": 8}]}, indent=1),
        ),
        "muster": (
            f"# jobs\n{job}\n{job.replace('60.5', '9')}\n"
            '{"submit_s": 5, "run_s": 9, "gpus": 24, "user": "a", "outcome": "failed"}\n',
        ),
    }


def topologies(form: str) -> Sequence[str]:
    """Return the topologies of docs/fabric-formats.md as samples."""
    blocks: dict[str, str] = dict(
        re.findall(r"```(\S+)\n(.*?)```", FORMATS_PAGE.read_text(), re.DOTALL)
    )
    return [blocks.get(form, blocks["slurm-yaml"])]


def events() -> Iterator[Event]:
    tenants = Tenants(
        (Tenant("a", "", 64, 128, 3, (GuaranteedCell("rack", 2),)), Tenant("default")),
        classes=(PriorityClass("spot", -1, is_preemptible=True),),
    )
    yield FabricLoaded(0, fabric_spec())
    yield TenantsLoaded(0, tenants.digest, tenants)
    yield JobSubmitted(1, "uid", spec("a", 4, priority=-3, limit_s=60), "r1")
    yield JobUpdated(2, "a", spec("a", 4, priority=3), "r2")
    yield JobStarted(2, "a", 1, ("z0-r0-h0",), ("z0-r1-h0",), (), 2**53, ("a note",))
    yield JobEnded(5, "a", JobState.CANCELLED, "typo")
    yield HostMoved(6, "z0-r0-h0", HostMove.DRAIN, "new cable")
    yield HostSignalled(7, "z0-r0-h0", "link-flap")


def tokens(state: State) -> Sequence[str]:
    return [listing.jobs(state, listing.Query(), size, "").next_token for size in (1, 2)]


def inflated(body: bytes) -> bytes:
    return zlib.decompress(body)


def deflated(body: bytes) -> bytes:
    return zlib.compress(body, 1)


RANK_REPORTS = (
    '{"step": 120, "checkpoint_step": 100, "checkpoint": "/c/100", "can_save": true, "total": 500}',
    '{"step": 7, "loss": 2.31, "busy": "evaluating", "stacks_pid": 4711}',
)
