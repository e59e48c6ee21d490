"""The slow link delays and limits, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts import link as links
from tests.hosts import peers
from tests.hosts.link import QUEUE, LinkNotAllowed, OneWay, link, namespaces

HOLD = """
import sys
from tests.hosts.link import link
with link() as nodes:
    print(*nodes.names, flush=True)
    sys.stdin.read()
"""


def test_a_packet_waits_for_those_before_it_and_takes_its_time():
    way = OneWay(delay=1.0, rate=800.0)  # 100 bytes a second
    way.take(b"a" * 10, now=5.0)
    way.take(b"b" * 5, now=5.0)
    way.take(b"c" * 10, now=7.0)
    assert [when for when, _ in way.packets] == pytest.approx([6.1, 6.15, 8.1], abs=1e-12)
    assert way.next() == pytest.approx(6.1)
    assert [each[:1] for each in way.arrived(7.0)] == [b"a", b"b"]
    assert not list(way.arrived(8.0))
    assert list(way.arrived(8.2)) == [b"c" * 10]
    assert way.next() == float("inf")


def test_what_would_wait_too_long_is_dropped():
    way = OneWay(delay=0.0, rate=8.0)  # one byte a second
    for packet in (b"a", b"b"):
        way.take(packet, now=0.0)
    assert [packet for _, packet in way.packets] == [b"a"]
    way.take(b"c", now=1.0 - QUEUE / 2)
    assert [when for when, _ in way.packets] == [1.0, 2.0]


def test_it_delays_and_limits(nodes):
    """Never less than 50 ms, nor than 5 MB at 100 Mbit/s take; how much more is the machine's
    affair."""
    program, size = peers.__file__, 5_000_000
    first = subprocess.Popen(
        nodes.command(0, [sys.executable, program, "answer", nodes.addresses[0]]),
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stdout.readline() == "ready\n"
        measure = [sys.executable, program, "measure", nodes.addresses[0], "5", str(size)]
        done = subprocess.run(
            nodes.command(1, measure), timeout=300, check=True, text=True, stdout=subprocess.PIPE
        )
    trip, transfer = json.loads(done.stdout)
    assert trip >= 0.05
    assert transfer >= 8 * size / 100e6


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
