"""Nothing here is collected in an environment without requirements/mutation.txt."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("cosmic_ray") else ["*.py"]
