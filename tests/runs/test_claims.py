"""Every run is claimed once, whoever dies, wherever they are, and whatever time it is."""

import os
import subprocess
import sys
import threading
import time

from polyarch.runs.claims import Claims, holders, this_machine

ELSEWHERE = "elsewhere/0"


HOLDER = """
import sys, time
from pathlib import Path
from polyarch.runs.claims import Claims
held = Claims(Path(sys.argv[1])).take("run")
print(flush=True)
time.sleep(60)
"""


def holder(folder):
    """Another process that has claimed `run`."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def end(process):
    process.kill()
    process.communicate()


def test_one_who_lives_keeps_it_and_one_who_died_does_not(tmp_path):
    claims = Claims(tmp_path)
    process = holder(tmp_path)
    assert claims.take("run") is None
    assert holders(tmp_path, process.pid) == ["run"]
    end(process)
    again = claims.take("run")
    assert again is not None
    assert claims.taken("run") == 2
    assert holders(tmp_path, process.pid) == []
    again.free()
    assert claims.take("run") is not None
    assert not list(tmp_path.glob(".*"))


def test_of_many_who_want_it_one_has_it(two_processes, tmp_path):
    won = two_processes(
        tmp_path,
        """
        import os
        from polyarch.runs.claims import Claims
        claims, kept = Claims(here / "claims"), []
        meet("ready")
        for k in range(300):
            if claim := claims.take(f"run-{k}"):
                kept.append(claim)
        said = [int(path.name.split("-")[1]) for path in (here / "claims").glob("run-*") if any(
            os.fstat(claim._descriptor).st_ino == path.stat().st_ino for claim in kept)]
        """,
    )
    assert sorted(won[0] + won[1]) == list(range(300))
    assert len(list((tmp_path / "claims").iterdir())) == 300


def test_another_machine_is_judged_by_its_beats_where_locks_do_not_reach(tmp_path):
    theirs = Claims(tmp_path, machine=ELSEWHERE).take("run")
    os.close(theirs._descriptor)  # its lock is not to be seen here
    theirs._descriptor = os.open(tmp_path / "run-1", os.O_RDWR)
    ours = Claims(tmp_path, patience=0.2)
    for _ in range(4):  # while it beats it lives, for longer than anybody is patient
        assert theirs.beat()
        assert ours.take("run") is None
        time.sleep(0.1)
    assert ours.take("run") is None
    time.sleep(0.25)
    mine = ours.take("run")
    assert mine is not None
    assert not theirs.beat(), "it was given up, and finds that out"
    assert mine.beat()


def test_times_of_files_mean_nothing(tmp_path):
    process = holder(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # as old as can be: it lives all the same
    assert Claims(tmp_path).take("run") is None
    end(process)
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() + 86_400,) * 2)  # from tomorrow, since the clock was set back: it is dead
    assert Claims(tmp_path).take("run") is not None


def test_who_is_given_up_is_told(tmp_path):
    claim, told = Claims(tmp_path).take("run"), threading.Event()
    with claim.held(lost=told.set, every=0.01):
        (tmp_path / "run-2").touch()
        assert told.wait(5)


def test_machines_differ_by_when_they_were_started():
    assert this_machine() == this_machine()
    assert len(this_machine().split()) == 1
    assert "/" in this_machine()
