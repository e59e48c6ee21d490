"""``deliralike launch`` for processes of the tests: runs a launcher's command, again after a
failure."""

import os
import sys

from deliralike.backends.processes.launch import watched

if __name__ == "__main__":
    engine, restarts, *command = sys.argv[1:]
    sys.exit(watched(engine, command, os.environ, int(restarts)))
