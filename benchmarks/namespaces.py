"""Two "machines" within this one, and a slow link between them.

They are network namespaces. The kernel's own delay (netem) is often missing, so what one sends goes
through a TUN device to a program, the link, which gives it to the other later: after the time that
the rate takes, and the delay.

The link makes the namespaces and removes them, also when whoever started it is killed. If it is
killed itself, whoever started it does; if both are, the next link. For that, the namespaces' names
carry the link's process id.

    with link() as nodes:
        subprocess.run(nodes.command(0, ["hostname"]))
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "deliralike"
DEVICE = "link"  # what each namespace's end is called
ADDRESSES = ("10.77.0.1", "10.77.0.2")
MTU = 9000  # bytes of a packet; fewer packets are less work for a program
QUEUE = 0.2  # seconds of sending that may wait; what comes on top is dropped, as on a real link
TUN = Path("/dev/net/tun")
_DENIED = (
    "Operation not permitted",
    "Permission denied",
)  # the system's words, and those of ip
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class LinkNotAllowed(Exception):
    """This machine does not let us make one; the message says why."""


@dataclass(frozen=True)
class Nodes:
    """Two machines that a slow link connects."""

    names: tuple[str, str]
    addresses: tuple[str, str] = ADDRESSES
    device: str = DEVICE

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """The command that runs another one on a node."""
        return ["ip", "netns", "exec", self.names[node], *command]


@contextlib.contextmanager
def link(round_trip: float = 0.05, rate: float = 100e6) -> Iterator[Nodes]:
    """Two machines with this round trip (in seconds) and rate (in bits a second) between them.

    Raises:
        LinkNotAllowed: It cannot be made here.
    """
    if shutil.which("ip") is None:
        raise LinkNotAllowed("there is no command ip: apt-get install iproute2")
    if not TUN.exists():
        raise LinkNotAllowed(f"there is no {TUN}: the kernel module tun is missing")
    remove_stale()
    program = subprocess.Popen(
        [sys.executable, __file__, str(round_trip / 2), str(rate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        names = program.stdout.readline().split()
        if len(names) != 2:
            said = program.stderr.read()
            denied = any(words in said for words in _DENIED)
            raise (
                LinkNotAllowed(said.strip().splitlines()[-1])
                if denied
                else RuntimeError(said)
            )
        yield Nodes((names[0], names[1]))
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            program.communicate(
                timeout=120
            )  # the end of its input, at which it cleans up
        program.kill()
        program.wait()
        remove_stale()


# Namespaces
# -----------------------------------------------------------------------------


def namespaces() -> list[str]:
    """Those of all links."""
    return [
        line.split()[0]
        for line in _ip("netns", "list").splitlines()
        if line.startswith(f"{NAME}-")
    ]


def remove_stale() -> None:
    """Remove the namespaces whose link has ended, with the processes in them."""
    for name in namespaces():
        if not Path(f"/proc/{name.split('-')[1]}").exists():
            remove(name)


def remove(name: str) -> None:
    """Remove a namespace, with the processes in it."""
    with contextlib.suppress(OSError):  # another process was faster
        for pid in _ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> str:
    done = subprocess.run(
        ["ip", *arguments], text=True, capture_output=True, timeout=120
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


# The link itself, a process of its own
# -----------------------------------------------------------------------------


class OneWay:
    """What is on its way in one direction, and when each packet arrives.

    Args:
        delay: Seconds on the way.
        rate: Bits a second.
    """

    def __init__(self, delay: float, rate: float) -> None:
        self.delay, self.rate = delay, rate
        self.free = 0.0  # when the sender has sent what it took
        self.packets: deque[tuple[float, bytes]] = deque()

    def take(self, packet: bytes, now: float) -> None:
        """Send a packet after those before it, or drop it where too much waits."""
        begin = max(self.free, now)
        if begin - now <= QUEUE:
            self.free = begin + 8 * len(packet) / self.rate
            self.packets.append((self.free + self.delay, packet))

    def arrived(self, now: float) -> Iterator[bytes]:
        """What has arrived."""
        while self.packets and self.packets[0][0] <= now:
            yield self.packets.popleft()[1]

    def next(self) -> float:
        """When the next one arrives."""
        return self.packets[0][0] if self.packets else float("inf")


def serve(delay: float, rate: float) -> None:
    """Make the namespaces, pass packets on until the standard input ends, and remove them."""
    names = [f"{NAME}-{os.getpid()}-{node}" for node in range(2)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        ends = [
            _end(name, address) for name, address in zip(names, ADDRESSES, strict=True)
        ]
        print(*names, flush=True)
        _pass_on(ends, delay, rate)
    finally:
        for name in names:
            remove(name)


def _end(name: str, address: str) -> int:
    """Make a namespace with a TUN device.

    What it sends is read from the file that is returned, and what it gets is written there.
    """
    _ip("netns", "add", name)
    end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    here = f"dl{name.removeprefix(NAME)}".replace("-", "_")
    fcntl.ioctl(
        end, _TUNSETIFF, struct.pack("16sH", here.encode(), _IFF_TUN | _IFF_NO_PI)
    )
    _ip("link", "set", "dev", here, "netns", name, "name", DEVICE)
    _ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
    _ip("-n", name, "link", "set", "dev", DEVICE, "mtu", str(MTU), "up")
    _ip("-n", name, "link", "set", "dev", "lo", "up")
    return end


def _pass_on(ends: Sequence[int], delay: float, rate: float) -> None:
    ways = {
        source: (OneWay(delay, rate), sink)
        for source, sink in zip(ends, reversed(ends), strict=True)
    }
    while True:
        wait = min(way.next() for way, _ in ways.values()) - time.monotonic()
        readable, _, _ = select.select(
            [sys.stdin, *ends], [], [], None if wait == float("inf") else max(wait, 0.0)
        )
        if sys.stdin in readable:
            return  # nothing is ever written to it: this is its end
        for source in readable:
            with contextlib.suppress(BlockingIOError):
                while True:
                    ways[source][0].take(os.read(source, MTU), time.monotonic())
        for way, sink in ways.values():
            for packet in way.arrived(time.monotonic()):
                with contextlib.suppress(
                    BlockingIOError
                ):  # its queue is full: a packet is lost
                    os.write(sink, packet)


if __name__ == "__main__":
    serve(*map(float, sys.argv[1:]))
