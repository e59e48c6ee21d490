"""The slow link delays and limits, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts import link as links
from tests.hosts.link import LinkNotAllowed, link, namespaces

HOLD = """
import sys
from tests.hosts.link import link
with link() as nodes:
    print(*nodes.names, flush=True)
    sys.stdin.read()
"""


def test_the_nodes_see_each_other_and_nothing_else(nodes):
    for node in range(2):
        seen = subprocess.run(
            nodes.command(node, ["ip", "-o", "link"]), check=True, text=True, stdout=subprocess.PIPE
        )
        assert [line.split(":")[1].strip() for line in seen.stdout.splitlines()] == ["lo", "link"]


def holding():
    """A process that has a link, and its namespaces."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=Path(__file__).parents[2],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    return process, process.stdout.readline().split()


def gone(names):
    for _ in range(2000):
        if not set(names) & set(namespaces()):
            return True
        time.sleep(0.05)
    return False


def test_nothing_is_left_at_the_end_nor_after_a_kill(nodes):
    """Of whoever has the link; of the link's own process; of both, until there is another link."""
    process, names = holding()
    with process:
        assert set(names) <= set(namespaces())
    assert gone(names)

    process, names = holding()
    with process:
        process.kill()
    assert gone(names)

    process, names = holding()
    program = int(names[0].split("-")[1])
    with process:
        os.kill(program, signal.SIGKILL)
    assert gone(names)

    process, names = holding()
    program = int(names[0].split("-")[1])
    os.kill(program, signal.SIGSTOP)  # so that it does not see its input end
    left = subprocess.Popen(links.Nodes(tuple(names)).command(0, ["sleep", "600"]))
    with process:
        process.kill()
    os.kill(program, signal.SIGKILL)
    assert set(names) <= set(namespaces())
    while Path(f"/proc/{program}").exists():
        time.sleep(0.01)
    with link() as another:
        assert not set(names) & set(namespaces())
        assert set(another.names) | set(nodes.names) <= set(namespaces())
    assert left.wait(120) == -signal.SIGKILL


def test_why_there_is_none_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(links, "TUN", tmp_path / "tun")
    with pytest.raises(LinkNotAllowed, match="kernel module tun is missing"), link():
        pass
    monkeypatch.setattr(links.shutil, "which", lambda name: None)
    with pytest.raises(LinkNotAllowed, match="apt-get install iproute2"), link():
        pass
