"""wheel_timer/identity.py: who is known to be dead, and who is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from wheel_timer.identity import identity, is_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what proves it")


def named(pid: int) -> str:
    role, *place, _, nonce = identity("broker").split("-")
    return "-".join((role, *place, str(pid), nonce))


def test_every_life_has_a_name_of_its_own() -> None:
    assert identity("broker") != identity("broker")
    assert f"-{os.getpid()}-" in identity("daemon")


def test_a_process_that_was_killed_is_gone_even_before_somebody_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        name = named(child.pid)
        assert not is_gone(name)
        child.send_signal(signal.SIGSTOP)
        assert not is_gone(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(name)
    assert is_gone(name)


def test_of_another_machine_or_another_space_of_pids_nobody_is_known_to_be_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    name = named(child.pid)
    assert is_gone(name)
    role, *host, machine, pid, nonce = name.split("-")
    other = f"{int(machine, 16) ^ 1:08x}"
    assert not is_gone("-".join((role, *host, other, pid, nonce)))
    assert not is_gone("-".join((role, "elsewhere", machine, pid, nonce)))
    assert not is_gone("-".join((role, *host, "", pid, nonce)))
    assert not is_gone("a broker")
    assert not is_gone(identity("broker"))
