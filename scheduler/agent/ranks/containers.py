"""Containers on this host: which program runs them, and how it is called.

A rank is a process of its container that has the network, the memory and the devices of the host,
the directory in which it works, and what the job mounts; all of it ends with the attempt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scheduler.agent.ranks.allow import NotAllowed

OWN_CONTAINER = "MUSTER_CONTAINER"
"""A variable of agents that run in containers themselves: the `container_key` of their job's."""

_ENGINES = ("apptainer", "singularity", "podman")
_PODMAN = (
    *("run", "--rm", "--interactive", "--entrypoint=", "--network=host"),
    # In the cgroup of the attempt, which ends it; podman then has no way to share pids.
    *("--cgroups=disabled", "--security-opt=no-new-privileges", "--security-opt=label=disable"),
)


def find_engine() -> str:
    """Return the path of what runs containers here, "" where nothing does."""
    return next((path for name in _ENGINES if (path := shutil.which(name))), "")


def container_key(image: str, mounts: Sequence[str]) -> str:
    """Return a name that is another one for each image with each mounts; "" for none."""
    digest = hashlib.sha256("\n".join(mounts).encode()).hexdigest()[:12] if mounts else ""
    return f"{image} {digest}".strip()


def container_order(
    engine: str, image: str, mounts: Sequence[str], workdir: str, own: Sequence[Path]
) -> dict[str, Any]:
    """Return how ranks are started in a container: `argv` before its image, and `image`. `own`:
    paths through which they speak with the agent.

    Raises: NotAllowed.
    """
    if not engine:
        raise NotAllowed("this host has no apptainer, singularity or podman to run containers")
    for path in (mount.partition(":")[0] for mount in mounts):
        if _is_absent(path):
            raise NotAllowed(f"there is no {path} to mount on this host")
    is_podman = Path(engine).name == "podman"
    if image.startswith("/") and _is_absent(image):
        raise NotAllowed(f"there is no image {image} on this host")
    seen = [f"{path}:{path}" for path in (workdir, *map(str, own))] + list(mounts)
    if is_podman:
        words = [*_PODMAN, f"--workdir={workdir}", *(f"--volume={mount}" for mount in seen)]
        words += [f"--device={device}" for device in _devices()]
        # The memory of the host, which podman shares where it finds its queues as well.
        has_queues = os.path.exists("/dev/mqueue")
        words += ["--ipc=host" if has_queues else "--volume=/dev/shm:/dev/shm"]
    else:
        words = ["exec", f"--pwd={workdir}", *(f"--bind={mount}" for mount in seen)]
        words += ["--nv"] if os.path.exists("/dev/nvidiactl") else []
        words += ["--rocm"] if os.path.exists("/dev/kfd") else []
    named = _podman_image(image) if is_podman else [_with_scheme(image)]
    return {"is_podman": is_podman, "argv": [engine, *words], "image": named}


def _is_absent(path: str) -> bool:
    """Return whether nothing is there, for all that this agent may see; a user may see more."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _devices() -> Iterator[str]:
    if os.path.exists("/dev/nvidiactl"):
        yield "nvidia.com/gpu=all"
    if os.path.exists("/dev/kfd"):
        yield from ("/dev/kfd", "/dev/dri")
    if os.path.exists("/dev/infiniband"):
        yield "/dev/infiniband"


def _with_scheme(image: str) -> str:
    return image if image.startswith(("/", "docker://")) else f"docker://{image}"


def _podman_image(image: str) -> list[str]:
    if not image.startswith("/"):
        return [image.removeprefix("docker://")]
    if os.path.isdir(image):
        return ["--rootfs", f"{image}:O"]
    if image.endswith(".tar"):
        return [f"docker-archive:{image}"]
    raise NotAllowed(
        f"podman runs no {image}: it takes folders, .tar files and images of registries"
    )
