"""What the supervisor of ranks does as their user: ports, and values of variables from files."""

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.agent.ranks import supervisor, zygote

# The library is gone from the moment at which the process becomes the user of the ranks.
RELAYS = """
import encodings, os, socket, sys
from scheduler.agent.ranks import supervisor

def become(user, environment, **_):
    encodings.__path__ = sys.path[:] = []
    return environment

supervisor._become = become
with socket.create_server(("127.0.0.1", 0)) as listening:
    order = {"user": "me", "env": {}, "workdir": "/", "command": ["sh"]}
    pid, says = supervisor._spawn(order, {"env": {}}, None, listening.getsockname()[1])
    link, _ = listening.accept()
    link.settimeout(60)
    print(os.read(says, 1000).decode(), link.recv(4).decode())
"""


def test_a_port_is_reached_by_users_who_cannot_read_the_library_of_python() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RELAYS], input="ping", capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == (" ping\n", "")


def test_an_endless_file_is_refused_and_a_value_is_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sécret\n")
    for read in (supervisor._read_value, zygote._read_value):
        with pytest.raises(OSError, match="File too large"):
            read("/dev/zero")
        assert read(str(path)) == "sécret"
