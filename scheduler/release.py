"""Which muster this is: the distribution that it comes in, and its version."""

from __future__ import annotations

from importlib.metadata import version

DISTRIBUTION = "muster-scheduler"  # on PyPI `muster` is somebody else's
SERVER_PACKAGES = frozenset(  # of the extra `server`: a thin client has none of them
    {
        "cryptography",
        "grpc_reflection",
        "jinja2",
        "jwt",
        "markupsafe",
        "matplotlib",
        "networkx",
        "numba",
        "numpy",
        "ortools",
        "prometheus_client",
        "psycopg",
        "starlette",
        "uvicorn",
        "uvloop",
    }
)


def release() -> str:
    """Return the version of muster that runs."""
    return version(DISTRIBUTION)


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return what to install for a command that a thin client lacks, or None where the missing
    module is not one of an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in SERVER_PACKAGES:
        return None
    return (
        f"this command needs {package}, which only servers need: pip install --require-hashes"
        " -r deploy/requirements.lock in muster's sources, or, where an index has it,"
        f" pip install '{DISTRIBUTION}[server]' (docs/operations.md)"
    )
