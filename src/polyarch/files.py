"""Files that are written whole or not at all, and the lock of a run folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from polyarch.errors import PolyarchError

LOCK = "lock"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_whole(path: Path, content: bytes) -> None:
    """Writes beside, flushes to the disk, renames: a reader sees the old file or the new one, never a part."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """The same for several files: none gets its name before all of them are on the disk."""
    beside = {path: _beside(path) for path in contents}
    for path, content in contents.items():
        try:
            with beside[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _forget(beside.values())
            raise cannot_write(path, error) from error
    _rename({beside[path]: path for path in contents})


@contextmanager
def written_whole(path: Path) -> Iterator[TextIO]:
    """A text that is written bit by bit, and has its name only once all of it is on the disk; else it is not there."""
    beside = _beside(path)
    try:
        try:
            with beside.open("w", encoding="utf-8", newline="") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.filename not in (None, str(beside)):
                raise
            raise cannot_write(path, error) from error
    except BaseException:
        _forget([beside])
        raise
    _rename({beside: path})


def _beside(path: Path) -> Path:
    """Where a file is written before it has its name."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _rename(names: Mapping[Path, Path]) -> None:
    """Gives files that are on the disk their names."""
    for beside, path in names.items():
        try:
            os.replace(beside, path)
            _sync_folder(path.parent)
        except OSError as error:
            _forget(names)
            raise cannot_write(path, error) from error


def _forget(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Adds to the end of a file; the one file that is not written whole is the list of metrics."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from error


def synced_size(path: Path) -> int:
    """How many bytes a file has, once all of them are on the disk; 0 where there is none."""
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise cannot_write(path, error) from error


def make_folder(path: Path) -> bool:
    """Makes a folder where there is none, and says whether it did."""
    try:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    return made


def cannot_write(path: Path, error: OSError) -> PolyarchError:
    """What to tell the user when a file cannot be written."""
    if error.errno in _NO_ROOM:
        return PolyarchError(
            f"no room left to write {path}; what was saved before is whole: free some space, then run it again, "
            "with --resume if the search had begun"
        )
    return PolyarchError(f"cannot write {path}: {error.strerror}; choose another --out or mend its permissions")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Strict JSON (no NaN), indented for people, with a digest that `read_json` checks."""
    write_whole(path, _json(path, value))


def write_json_once(path: Path, value: dict[str, Any]) -> bool:
    """The same, unless the file is there: of several processes that write it one does, and is told so."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.once")
    write_whole(beside, _json(path, value))
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _json(path: Path, value: dict[str, Any]) -> bytes:
    try:
        text = json.dumps({**value, "digest": _digest(value)}, indent=2, allow_nan=False)
    except ValueError:
        raise PolyarchError(
            f"cannot write {path}: a number in it is not finite, since training diverged; "
            "start again in another --out with a smaller rate"
        ) from None
    return f"{text}\n".encode()


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; says which file is damaged when one is."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("not an object")
        if "digest" in value and value.pop("digest") != _digest(value):
            raise ValueError("its contents do not match its digest")
    except FileNotFoundError:
        raise PolyarchError(f"{path} is missing; restore it or start a new run") from None
    except (OSError, ValueError) as error:
        raise PolyarchError(f"{path} is damaged ({error}); restore it or start a new run") from None
    return value


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a run folder against a second writer; the system lets go of it when the process ends, however it ends."""
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise PolyarchError(
                f"{folder} is being written by another process; wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise cannot_write(path, error) from error
        for part in (*folder.glob(".*.part"), *folder.glob("seed-*/.*.part")):  # left by a writer that was killed
            part.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process writes to a run folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int) -> None:
    """Locks a file; who only looks whether it is locked has it for less than a moment, and is waited for."""
    for _ in range(5):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
