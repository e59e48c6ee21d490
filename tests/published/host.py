"""A host of weight files on the loopback address, which can misbehave on request."""

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + 34 * "0"


class Host:
    """Serves `files` by path, with ranges, and as a Hub where the path is that of a repository.

    Attributes:
        files: Contents by path.
        etags, commit: What is said in the place of a file's hash, by path, and of the commit.
        manners: For a path, what to do at each of the next requests (GET), oldest first; after
            them the file is served.
        requests: Method, path and range of every request.
        tokens: The path of every request, and what it says of who asks.
    """

    def __init__(self):
        self.files = {}
        self.etags = {}
        self.commit = COMMIT
        self.manners = {}
        self.requests = []
        self.tokens = []

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"host": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def gets(self):
        return [
            (path, ranges) for method, path, ranges in self.requests if method == "GET"
        ]


class _Handler(BaseHTTPRequestHandler):
    host: Host

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(self.path, is_head=True)

    def do_GET(self):
        manners = self.host.manners.get(self.path)
        if manners:
            self.note()
            getattr(self, manners.pop(0))()
        else:
            self.answer(self.path, is_head=False)

    def note(self):
        token = self.headers.get("Authorization", "")
        self.host.tokens.append((self.path, token))
        self.host.requests.append(
            (self.command, self.path, self.headers.get("Range", ""))
        )

    def answer(self, path, is_head):
        self.note()
        if path not in self.host.files:
            self.refuse(404)
            return
        content = self.host.files[path]
        start = 0
        ranges = self.headers.get("Range", "")
        if ranges:
            start = int(ranges.removeprefix("bytes=").partition("-")[0])
        if start >= len(content):
            self.refuse(416)
            return
        self.send_response(206 if ranges else 200)
        if ranges:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
            )
        self.send_header("Content-Length", str(len(content) - start))
        etag = self.host.etags.get(path, hashlib.sha256(content).hexdigest())
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", self.host.commit)
        self.end_headers()
        if not is_head:
            self.wfile.write(content[start:])

    def refuse(self, status, **headers):
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "EntryNotFound")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    # manners

    def cut(self):
        """Promises the whole file and hangs up after a third."""
        content = self.host.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 3])
        self.wfile.flush()
        self.connection.close()

    def slow(self):
        """Says nothing for longer than the client waits."""
        content = self.host.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 3])
        self.wfile.flush()
        time.sleep(0.6)

    def redirect(self):
        self.refuse(302, Location=f"{self.host.url}/elsewhere{self.path}")

    def busy(self):
        self.refuse(429, Retry_After="1")

    def closed(self):
        self.refuse(401)

    def broken(self):
        self.refuse(500)
