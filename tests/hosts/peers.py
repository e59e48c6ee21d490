"""Two programs that see what a link does: one answers, the other measures; nothing here is slow to
import."""

import json
import socket
import sys
import time

PORT = 7_700


def answer(address: str) -> None:
    """One connection: single bytes are sent back, and after them whatever comes is counted and
    acknowledged."""
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        connection = server.accept()[0]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips, size = json.loads(connection.makefile().readline())
        connection.sendall(b".")
        for _ in range(trips):
            connection.sendall(connection.recv(1))
        while size:
            size -= len(connection.recv(1 << 16))
        connection.sendall(b"!")


def measure(address: str, trips: str, size: str) -> None:
    """The shortest of some round trips, and how long so many bytes take, in seconds."""
    with socket.create_connection((address, PORT), timeout=300) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(json.dumps([int(trips), int(size)]).encode() + b"\n")
        connection.recv(1)
        shortest = min(_seconds(connection, b"?") for _ in range(int(trips)))
        print(json.dumps([shortest, _seconds(connection, bytes(int(size)))]))


def _seconds(connection: socket.socket, message: bytes) -> float:
    start = time.perf_counter()
    connection.sendall(message)
    connection.recv(1)
    return time.perf_counter() - start


if __name__ == "__main__":
    {"answer": answer, "measure": measure}[sys.argv[1]](*sys.argv[2:])
