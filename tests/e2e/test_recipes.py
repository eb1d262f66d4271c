"""The recipes of docs/launch.md: frameworks that write checkpoints themselves, killed and resumed.

FRAMEWORKS_PYTHON names an interpreter that has them, where this one has not.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placement.workload.request import NO_SPARES
from scheduler.v1 import job_pb2
from tests.e2e.gangs import gang, local_server, until

PYTHON = os.environ.get("FRAMEWORKS_PYTHON", sys.executable)

HEAD = """
import os, sys
import torch
from muster import progress
torch.set_num_threads(1)
root, rank = os.environ["CKPT"], int(os.environ["RANK"])
if rank == 0:
    progress.resume(root)
where = os.environ["MUSTER_CHECKPOINT"] or None

def end_of_step(step):
    if rank == 0:
        progress.report(step, total=40)
    if rank == 1 and step == 27 and os.environ["MUSTER_ATTEMPT"] == "1":
        os.kill(os.getpid(), 9)
"""

TORCH_DCP = """
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
dist.init_process_group("gloo")
state = {"weights": torch.zeros(8)}
if where:
    dcp.load(state, checkpoint_id=where)
start = int(state["weights"][0])
print("from step", start, flush=True)
saves = dist.new_group(backend="gloo")  # those of async_save may not meet those of steps
pending = None
for step in range(start + 1, 41):
    one = torch.ones(8)
    dist.all_reduce(one)
    state["weights"] += one / dist.get_world_size()
    if pending and step % 20 == 5:
        pending.result()
        if rank == 0:
            progress.saved(step - 5, f"{root}/step-{step - 5}", marker=".metadata")
    if step == 20:
        pending = dcp.async_save(
            state, checkpoint_id=f"{root}/step-{step}", process_group=saves
        )
    if step == 40:
        dcp.save(state, checkpoint_id=f"{root}/step-{step}")
        if rank == 0:
            progress.saved(step, f"{root}/step-{step}", marker=".metadata")
    end_of_step(step)
dist.destroy_process_group()
"""

HF_TRAINER = """
from transformers import Trainer, TrainerCallback, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": ((self.layer(x)[:, 0] - labels) ** 2).mean()}

class Reports(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        print("from step", state.global_step, flush=True)
    def on_step_end(self, args, state, control, **_):
        end_of_step(state.global_step)
    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            path = f"{args.output_dir}/checkpoint-{state.global_step}"
            progress.saved(state.global_step, path, marker="trainer_state.json")

arguments = TrainingArguments(
    output_dir=root, max_steps=40, save_steps=20, use_cpu=True, ddp_backend="gloo",
    report_to="none", disable_tqdm=True, per_device_train_batch_size=2,
)
data = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(200)]
trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[Reports()])
trainer.train(resume_from_checkpoint=where)
"""

LIGHTNING = """
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return (self.layer(batch) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Reports(lightning.Callback):
    def on_train_start(self, trainer, model):
        print("from step", trainer.global_step, flush=True)
    def on_train_batch_end(self, trainer, model, *_):
        step = trainer.global_step
        if step % 20 == 0:
            path = f"{root}/step-{step}.ckpt"
            trainer.save_checkpoint(path)  # on all ranks
            if trainer.is_global_zero:
                progress.saved(step, path)
        end_of_step(step)

trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", devices=2, max_steps=40, callbacks=[Reports()],
    enable_checkpointing=False, logger=False, enable_progress_bar=False,
)
data = torch.utils.data.DataLoader(torch.ones(400, 4), batch_size=2)
trainer.fit(Model(), data, ckpt_path=where)
"""


DEEPSPEED = """
import deepspeed
from pathlib import Path

deepspeed.init_distributed("gloo")
model = torch.nn.Linear(4, 1)
settings = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 0},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
if where:
    engine.load_checkpoint(root, tag=Path(where).name)
print("from step", engine.global_steps, flush=True)
while engine.global_steps < 40:
    loss = (engine(torch.ones(2, 4)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    step = engine.global_steps
    if step % 20 == 0:
        tag = f"step-{step}"
        engine.save_checkpoint(root, tag)  # on all ranks
        torch.distributed.barrier()
        if rank == 0:
            progress.saved(step, f"{root}/{tag}")
    end_of_step(step)
"""

TORCHTITAN = """
import torch.distributed as dist
from torchtitan.components.checkpoint import CheckpointManager

dist.init_process_group("gloo")

class Part:
    def __init__(self):
        self.step = 0
    def state_dict(self):
        return {"step": torch.tensor(self.step)}
    def load_state_dict(self, state):
        self.step = int(state["step"])

parts = {name: Part() for name in ("train_state", "dataloader", "optimizers", "lr_schedulers")}
train = parts.pop("train_state")
checkpointer = CheckpointManager(
    CheckpointManager.Config(enable=True, interval=20, last_save_model_only=False, keep_latest_k=0),
    model_parts=[torch.nn.Linear(4, 1)], states={"train_state": train}, sd_adapter=None,
    base_folder=root, **parts,
)
if where:
    checkpointer.load(int(os.environ["MUSTER_CHECKPOINT_STEP"]))
print("from step", train.step, flush=True)
for step in range(train.step + 1, 41):
    dist.all_reduce(torch.ones(8))
    train.step = step
    if checkpointer.save(step, last_step=step == 40) and rank == 0:
        progress.saved(step, f"{checkpointer.folder}/step-{step}", marker=".metadata")
    end_of_step(step)
checkpointer.close()
dist.destroy_process_group()
"""

# Its saves wait for the GPU, which is not there, and speak of it as the device of their words.
MEGATRON_CORE = """
import torch.distributed as dist
torch.cuda.synchronize = lambda: None
torch.cuda.current_device = lambda: "cpu"
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor

dist.init_process_group("gloo")
parallel_state.initialize_model_parallel()
world = dist.get_world_size()

def sharded(part):
    return {"weights": ShardedTensor.from_rank_offsets("weights", part, (0, rank, world))}

part, start = torch.zeros(8), 0
if where:
    part = dist_checkpointing.load(sharded(part), where)["weights"]
    start = int(part[0])
print("from step", start, flush=True)
for step in range(start + 1, 41):
    one = torch.ones(8)
    dist.all_reduce(one)
    part += one / world
    if step % 20 == 0:
        folder = f"{root}/iter_{step:07d}"
        os.makedirs(folder, exist_ok=True)
        dist_checkpointing.save(sharded(part), folder)
        if rank == 0:
            progress.saved(step, folder, marker="metadata.json")
    end_of_step(step)
dist.destroy_process_group()
"""


def _need(*modules: str) -> None:
    look = f"import {', '.join(modules)}"
    if subprocess.run([PYTHON, "-c", look], capture_output=True, check=False).returncode:
        pytest.skip(f"{PYTHON} cannot import {' and '.join(modules)}: set FRAMEWORKS_PYTHON")


@pytest.mark.parametrize(
    ("script", "modules"),
    [
        pytest.param(TORCH_DCP, ("torch", "numpy"), id="torch-dcp"),
        pytest.param(HF_TRAINER, ("transformers", "accelerate"), id="hf-trainer"),
        pytest.param(LIGHTNING, ("lightning",), id="lightning"),
        pytest.param(DEEPSPEED, ("deepspeed",), id="deepspeed"),
        pytest.param(TORCHTITAN, ("torchtitan.components.checkpoint",), id="torchtitan"),
        pytest.param(MEGATRON_CORE, ("megatron.core",), id="megatron-core"),
    ],
)
def test_a_recipe_goes_on_from_the_checkpoint_that_its_framework_wrote(
    tmp_path: Path, script: str, modules: tuple[str, ...]
) -> None:
    _need(*modules)
    root = tmp_path / "frameworks"
    with local_server(tmp_path, racks=1, hosts=1, lease_s=30) as (_, client):
        made = gang("a", tmp_path, 1, spares=NO_SPARES)
        assert made.run is not None
        env = (*made.run.env, ("CKPT", str(root)), ("OMP_NUM_THREADS", "1"))
        run = replace(made.run, command=(PYTHON, "-c", HEAD + script), env=env)
        client.create_job(replace(made, run=run))
        job = until(client, "a", lambda job: job.state > job_pb2.JOB_STATE_INTERRUPTED, 150)
        log = b"".join(client.tail_logs("a")).decode()
        assert job.state == job_pb2.JOB_STATE_COMPLETED, (job, log)
        assert (job.attempt, job.saved_checkpoint.step) == (2, 40)
        assert "from step 20\n" in log
