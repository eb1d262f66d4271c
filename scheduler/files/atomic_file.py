"""Files for users, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from scheduler.files.errors import unwritable


@contextmanager
def written(path: Path, option: str, mode: int | None = None) -> Iterator[BinaryIO]:
    """Return a context with a file that becomes `path`, on disk, once the block has ended well;
    until then, and otherwise, the old file stays. A device or a pipe is written to directly.
    `mode`: its permissions, whatever the umask says, of a file that nobody else has open; None: as
    the umask has them.

    Raises: as `unwritable`, which `option` names.
    """
    is_file = path.is_file() or not path.exists()
    # A link goes on pointing where it does.
    target = Path(os.path.realpath(path)) if is_file else path
    part_file = target.with_name(f"{target.name}.part") if is_file else target
    is_new = is_file and mode is not None

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags | (os.O_EXCL if is_new else 0), 0o666 if mode is None else mode)

    try:
        if is_new:
            part_file.unlink(missing_ok=True)
        with open(part_file, "wb", opener=opened) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            if is_file:
                file.flush()
                os.fsync(file.fileno())
        if is_file:
            part_file.replace(target)
            sync_folder(target.parent)
    except OSError as error:
        raise unwritable(path, option, error) from None
    finally:
        if is_file:
            with suppress(OSError):
                part_file.unlink()


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that names of new files in it are durable."""
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def write(path: Path, text: str, option: str) -> None:
    """Write a file of this text. Raises: as `written`."""
    with written(path, option) as file:
        file.write(text.encode())
