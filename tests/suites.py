"""Three suites, each a part of the next: quick (at each save), short (before a commit), all (before
a release).

A pytest plugin, after tests.measuring (``-p tests.suites --suite quick``). The short suite leaves
out what is marked `long`. Of a test whose cases take longer than `SHORT` together on a backend it
runs the first ones that fit; where not even one does, it runs one, unless the same test takes less
on another backend. A test that is marked `every_case` keeps them all. The quick suite takes the
cheapest tests of the short one, one case each on each backend, until they would take `QUICK`
together. What tests cost stands in `MEASURED`; one that is not there yet is run. Each run ends by
saying what it left out.
"""

from collections import Counter
from functools import cache
from itertools import groupby
from operator import itemgetter

import pytest

from tests import measuring
from tests.measuring import case

#: In the folder of pyproject.toml.
MEASURED = "tests/measured.csv"
#: Seconds of the processor: of a test on one backend; of all tests together, of which two processes
#: do half each.
SHORT, QUICK = 0.3, 30.0
SUITES = ("quick", "short", "all")
left_out = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    parser.addoption(
        "--suite", choices=SUITES, default="all", help="how much to run: quick, short or all"
    )


def pytest_configure(config):
    config.stash[left_out] = Counter()


def pytest_ignore_collect(collection_path, config):
    """The quick suite does not even import the files of which it would run nothing."""
    if config.getoption("--suite") != "quick" or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(config.rootpath).as_posix()
    costs = config.rootpath / MEASURED
    return True if file in files(measured(costs)) and file not in files(cheapest(costs)) else None


def pytest_collection_modifyitems(config, items):
    suite, costs = config.getoption("--suite"), config.rootpath / MEASURED
    kept = list(items)
    if suite != "all":
        kept = short(kept, costs)
    if suite == "quick":
        kept = quick(kept, costs)
    staying = set(kept)
    dropped = [item for item in items if item not in staying]
    if not dropped:
        return
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)
    counts = Counter("/".join(item.nodeid.split("::")[0].split("/")[:2]) for item in dropped)
    config.stash[left_out].update(counts)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left out"] = dict(counts)


def short(items, costs):
    """What is not marked `long`, and of dear tests as much as fits."""
    seconds = {key: case(row) for key, row in rows_of(costs).items()}
    lowest = {
        test: min(seconds[key] for key in keys)
        for test, keys in groupby(sorted(seconds), key=itemgetter(0))
    }
    spent, kept = {}, []
    for item in items:
        if item.get_closest_marker("long"):
            continue
        key = measuring.named(item.nodeid)
        cost = seconds.get(key, 0.0)
        if spent.get(key, 0.0) + cost > SHORT and not item.get_closest_marker("every_case"):
            if key in spent or lowest[key[0]] <= SHORT:
                continue
        spent[key] = spent.get(key, 0.0) + cost
        kept.append(item)
    return kept


def quick(items, costs):
    """The first case of each cheap test on each backend, and every case of a test that was never
    measured."""
    chosen, known, kept = cheapest(costs), measured(costs), {}
    for item in items:
        key = measuring.named(item.nodeid)
        if key in chosen:
            kept.setdefault(key, item)
        elif key not in known:
            kept[item] = item
    return list(kept.values())


rows_of = cache(measuring.rows_of)


@cache
def measured(costs):
    """The tests and backends that a full run has measured, as (test, backend)."""
    return frozenset(rows_of(costs))


@cache
def cheapest(costs):
    """The tests and backends of the quick suite, as (test, backend)."""
    chosen, total = set(), 0.0
    rows = rows_of(costs)
    for key in sorted(rows, key=lambda key: in_quick(rows[key])):
        total += in_quick(rows[key])
        if total > QUICK:
            break
        chosen.add(key)
    return frozenset(chosen)


def in_quick(row):
    """What one case costs in the quick suite: not less than in a run of everything."""
    return max(case(row), row.get("quick", 0.0))


@cache
def files(tests):
    """The files of some tests."""
    return frozenset(test.split("::")[0] for test, _ in tests)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every worker left out the same tests."""
    config = node.config
    config.stash[left_out] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_terminal_summary(terminalreporter, config):
    say = terminalreporter.write_line
    gpu = [
        report
        for report in terminalreporter.stats.get("skipped", ())
        if "gpu" in getattr(report, "keywords", ())
    ]
    if gpu:
        say(f"tests that need a GPU: {len(gpu)} skipped, as this machine has none")
    suite, counts = config.getoption("--suite"), config.stash[left_out]
    if suite == "all":
        say("the suite left out nothing")
        return
    if not counts:
        return
    by_folder = ", ".join(f"{folder} {count:,}" for folder, count in counts.most_common())
    say(f"left out {counts.total():,} tests ({by_folder})")
    say(
        "'make test' runs more of them, 'make test-all' all"
        if suite == "quick"
        else "'make test-all' runs them too"
    )
