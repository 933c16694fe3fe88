import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

LONGEST = 120
"""Seconds after which processes that wait for each other are given up."""
WORKER = """
import json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
import polyarch as pa
from polyarch.runs.search import resume, search

me = int(sys.argv[1])
for line in sys.stdin:
    folder, body = json.loads(line)
    here = Path(folder)

    def meet(name):
        (here / f"{name}-{me}").touch()
        while len(list(here.glob(f"{name}-*"))) < 2:
            time.sleep(0.0005)

    names = dict(globals())
    exec(body, names)
    print(json.dumps(names["said"]), flush=True)
"""


@pytest.fixture(scope="session")
def two_processes():
    """Runs code in two processes at once, each number `me`, and gives what each left in `said`.

    The code finds a folder `here` and may `meet` the other. Importing torch takes most of the time: it is done once.
    """
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(me)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for me in range(2)
    ]

    def run(here: Path, body: str) -> list:
        given_up = threading.Timer(LONGEST, lambda: [worker.kill() for worker in workers])
        given_up.start()
        try:
            for worker in workers:
                worker.stdin.write(json.dumps([str(here), textwrap.dedent(body)]) + "\n")
                worker.stdin.flush()
            return [json.loads(worker.stdout.readline()) for worker in workers]
        finally:
            given_up.cancel()

    yield run
    for worker in workers:
        worker.kill()
        worker.communicate()
