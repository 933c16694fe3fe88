"""Files that are written whole or not at all, and the lock of a run folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyarch.errors import PolyarchError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_whole(path: Path, content: bytes) -> None:
    """Writes beside, flushes to the disk, renames: a reader sees the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def append(path: Path, text: str) -> None:
    """Adds to the end of a file; the one file that is not written whole is the list of metrics."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> PolyarchError:
    """What to tell the user when a file cannot be written."""
    if error.errno in _NO_ROOM:
        return PolyarchError(
            f"no room left to write {path}; what was saved before is whole: free some space, then add --resume"
        )
    return PolyarchError(f"cannot write {path}: {error.strerror}; choose another --out or mend its permissions")


def write_json(path: Path, value: Any) -> None:
    """Strict JSON (no NaN), indented for people."""
    write_whole(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The value in a JSON file; says which file is damaged when it is."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PolyarchError(f"{path} is missing: {path.parent} is not a polyarch run, or not a whole one") from None
    except (OSError, ValueError) as error:
        raise PolyarchError(f"{path} cannot be read ({error}); restore it or start a new run") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a run folder against a second writer; the system lets go of it when the process ends, however it ends."""
    path = folder / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PolyarchError(
                f"{folder} is being written by another process; wait for it, or choose another --out"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
