"""Which process makes which run: workers meet in a folder, and every run is claimed once.

A claim is a file that its holder has locked, `NAME-1`; who takes over from a holder that died makes the next one,
`NAME-2`. A hard link makes it, which fails for all but one of those who try, also on a file server; it is locked before
it has that name. The lock goes with the process, however it ends. Where locks do not reach other machines, a claim of
another one is judged by its beats: a number that its holder counts up while it lives. Who sees it stand still for long
enough, by a clock of their own that only goes forward, takes over; and a holder that was given up, since its machine
was asleep, finds the claim after its own at its next beat, and ends. No time of day is compared with another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import final

from polyarch.files import cannot_write, make_folder

BEAT = 5.0
"""Seconds from one beat to the next."""
PATIENCE = 60.0
"""Seconds without a beat after which a holder on another machine is given up."""
DIGITS = 20
FREE = "free".ljust(DIGITS).encode()
"""In place of a beat: its holder has let go of it."""


@cache
def this_machine() -> str:
    """This machine since it was last started: locks of its processes reach each other."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        started = f"{uuid.getnode():x}"
    return f"{'-'.join(socket.gethostname().split())}/{started}"


@final
class Claims:
    """Claims of runs, by their names, in a folder that all who want some can write to."""

    def __init__(self, folder: Path, machine: str | None = None, patience: float = PATIENCE) -> None:
        """Makes the folder where there is none."""
        self.folder, self.patience = folder, patience
        self.machine = machine or this_machine()
        self._seen: dict[Path, tuple[bytes, float]] = {}
        make_folder(folder)

    def take(self, name: str) -> Claim | None:
        """A claim of a run; None where somebody who lives has it."""
        newest = self.taken(name)
        return None if newest and self._lives(self.path(name, newest)) else self._make(name, newest + 1)

    def taken(self, name: str) -> int:
        """How many times a run was claimed: once, and once more for every holder that died."""
        count = 0
        while self.path(name, count + 1).exists():
            count += 1
        return count

    def path(self, name: str, number: int) -> Path:
        """Of a claim."""
        return self.folder / f"{name}-{number}"

    def _lives(self, path: Path) -> bool:
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            content = os.pread(descriptor, 4096, 0)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise cannot_write(path, error) from error
            return True
        finally:
            os.close(descriptor)
        if content.startswith(FREE) or content.partition(b" ")[2].split()[:1] == [self.machine.encode()]:
            return False
        beat, now = content[:DIGITS], time.monotonic()
        last, since = self._seen.get(path, (b"", now))
        if beat != last:
            self._seen[path] = (beat, now)
            return True
        return now - since < self.patience

    def _make(self, name: str, number: int) -> Claim | None:
        path, beside = self.path(name, number), self.folder / f".{uuid.uuid4().hex}.part"
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise cannot_write(beside, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, f"{0:0{DIGITS}d} {self.machine} {os.getpid()}\n".encode())
            with suppress(FileExistsError):
                os.link(beside, path)
            won = os.stat(beside).st_nlink == 2  # true also where a server's answer was lost, and asked for again
        except OSError as error:
            os.close(descriptor)
            raise cannot_write(path, error) from error
        finally:
            beside.unlink(missing_ok=True)
        if not won:
            os.close(descriptor)
            return None
        return Claim(descriptor, self.path(name, number + 1))


@final
class Claim:
    """A run that this process makes, and no other does."""

    def __init__(self, descriptor: int, next_one: Path) -> None:
        """Takes the locked file, and where the claim of somebody who takes over would be."""
        self._descriptor, self._next, self._beats = descriptor, next_one, 0

    def beat(self) -> bool:
        """Shows that its holder lives; says whether the run is still its own."""
        self._beats += 1
        with suppress(OSError):  # a full disk: others see no beat, which they are patient with
            os.pwrite(self._descriptor, f"{self._beats:0{DIGITS}d}".encode(), 0)
            os.fsync(self._descriptor)
        return not self._next.exists()

    def free(self) -> None:
        """Lets others have the run."""
        with suppress(OSError):
            os.pwrite(self._descriptor, FREE, 0)
        os.close(self._descriptor)

    @contextmanager
    def held(self, lost: Callable[[], object], every: float = BEAT) -> Iterator[None]:
        """Beats until it is left, and lets go of the run then; calls `lost` where somebody took over."""
        over = threading.Event()

        def beats() -> None:
            while not over.wait(every):
                if not self.beat():
                    lost()
                    return

        thread = threading.Thread(target=beats, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.free()


def holders(folder: Path, pid: int) -> list[str]:
    """Names of the runs whose newest claims are those of a process of this machine, which has not let go of them."""
    found = {}
    for path in sorted(folder.glob("*-*"), key=lambda path: int(path.name.rpartition("-")[2])):
        with suppress(OSError):
            beat, *holder = path.read_text().split()
            found[path.name.rpartition("-")[0]] = beat.isdecimal() and holder == [this_machine(), str(pid)]
    return [name for name, own in found.items() if own]
