"""One command in several processes, as `torchrun` starts them: they compute together, and speak as one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from types import FrameType

from polyarch.cli.saying import processes
from polyarch.errors import PolyarchError

PATIENCE = timedelta(hours=24)
"""How long processes wait for the first one, which evaluates what was found by itself. One that dies is noticed at once
all the same: its connections close."""
NEEDED = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SECONDS = 5.0
"""To ask whether another process has said why all of them end."""


class Terminated(PolyarchError):
    """The process was told to end."""


@contextmanager
def joined(device: str | None) -> Iterator[None]:
    """Under torchrun, all processes work on one search, on the CPU or each on the CUDA device of its number."""
    if processes() == 1:
        yield
        return
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        raise PolyarchError(
            f"WORLD_SIZE is {processes()}, and {missing[0]} is not set: start all processes by torchrun, or unset "
            "WORLD_SIZE"
        )
    import torch.distributed as dist

    try:
        dist.init_process_group(_backend(device), timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise PolyarchError(f"the processes cannot reach each other ({str(error).splitlines()[0]})") from error
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
        signal.signal(signal.SIGTERM, before)
    except BaseException as error:
        # It ends anyway, and may have something to say; that what reads data for it was told to end, too, is no news.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _is_first_to_say()  # asked before the others notice that this one leaves
        came_of = _came_of(error) if isinstance(error, Exception) else None
        if came_of is None or came_of is error:
            raise
        raise came_of from error
    finally:
        dist.destroy_process_group()


def _came_of(error: BaseException | None) -> BaseException | None:
    """The end of another process, or the word to end, where an error came of it: others are raised on the way."""
    from polyarch.distributed import Lost

    while error is not None and not isinstance(error, Lost | Terminated):
        error = error.__cause__ or error.__context__
    return error


def _backend(device: str | None) -> str:
    """By where processes compute; makes this one's CUDA device the one that `cuda` means."""
    import torch

    if device and device.startswith("cuda:"):
        raise PolyarchError(f"under torchrun every process has the device of its number; say cuda, not {device}")
    if device == "cpu" or not torch.cuda.is_available():
        return "gloo"
    own, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if own >= there:
        raise PolyarchError(
            f"there are {there} CUDA devices here for more processes than that; start {there}, or say --device cpu"
        )
    torch.cuda.set_device(own)
    return "cpu:gloo,cuda:nccl"


def _terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated("told to end (SIGTERM), as torchrun does where another process has ended")


def last_word(text: str) -> None:
    """Says in one line why the command ends, unless another of its processes has done that."""
    if processes() == 1 or _is_first_to_say():
        print(f"polyarch: {text}", file=sys.stderr, flush=True)


@cache
def _is_first_to_say() -> bool:
    """Asks the store in which torchrun keeps what processes know of each other; once."""
    if "MASTER_ADDR" not in os.environ:
        return True
    import torch.distributed as dist

    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, None, False, timedelta(seconds=SECONDS), wait_for_workers=False)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return bool(store.add(f"polyarch/ended/{attempt}", 1) == 1)
    except (RuntimeError, KeyError, ValueError):
        return True  # rather twice than not at all
