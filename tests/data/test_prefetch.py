"""Batches made ahead: the same batches in the same order, errors in their place, nothing left
running."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from deliralike import data
from deliralike.errors import BatchError, SettingError, WorkerTimeout
from tests.data.sources import (
    Failing,
    Hanging,
    Squares,
    Stubborn,
    ended,
    fail_stubbornly,
    marked,
)
from tests.data.test_loader import RANDOM, labels, same

THREADS = {"workers": 3, "prefetch": 4}
PROCESSES = {"workers": 2, "worker_kind": "process"}
# Seconds after which something hangs; on a busy machine even a start takes many of them.
LIMIT = 600
WAYS = pytest.mark.parametrize(
    "way", [{"prefetch": 1}, THREADS, PROCESSES], ids=["ahead", "threads", "processes"]
)


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    before = set(threading.enumerate())

    def left():
        return [
            each for each in threading.enumerate() if each not in before
        ] + multiprocessing.active_children()

    yield
    if left():  # what hangs in a circle ends when it is collected
        gc.collect()
    assert left() == []


def test_a_share_of_a_loader_uses_the_workers_of_its_block_while_it_is_open():
    loader = data.Loader(Squares(), 5, workers=1, timeout=60)
    expected = list(data.Loader(Squares(), 5).batches())
    with loader:
        with loader.shared(0, 1) as share:
            assert same(list(share), expected)
        assert "deliralike thread worker 0" in {t.name for t in threading.enumerate()}
        assert same(list(loader), expected)
    assert same(list(share.batches()), expected)


@WAYS
def test_workers_change_nothing_about_the_batches(way):
    plain = data.Loader(Squares(), 5, **RANDOM)
    assert same(
        list(data.Loader(Squares(), 5, **way, **RANDOM).batches(1, 1)),
        list(plain.batches(1, 1)),
    )


def test_arrays_go_through_processes():
    arrays = {"x": np.arange(23.0), "y": np.arange(23), "name": "train"}
    with data.Loader(arrays, 5, **PROCESSES) as loader:
        assert labels(loader) == labels(data.Loader(arrays, 5).batches())
        assert next(iter(loader))["name"] == "train"


def test_threads_and_processes_share_the_work():
    with data.Loader(Squares(), 5, transform=marked, **PROCESSES) as loader:
        processes = {
            process for batch in loader for process in batch["process"].tolist()
        }
    assert os.getpid() not in processes
    threads = {
        each
        for batch in data.Loader(Squares(), 5, transform=marked, **THREADS)
        for each in batch["thread"].tolist()
    }
    assert threading.get_ident() not in threads


def test_processes_are_kept_inside_a_with_block_and_end_with_it():
    with data.Loader(
        Squares(), 5, transform=marked, workers=1, worker_kind="process"
    ) as loader:
        first, second = (
            {each for batch in loader for each in batch["process"].tolist()}
            for _ in range(2)
        )
    assert len(first) == 1
    assert first == second
    assert multiprocessing.active_children() == []


@WAYS
def test_an_error_comes_with_its_type_in_its_place_and_names_the_sample(way):
    batches = data.Loader(Failing(), 5, shuffle=False, **way).batches()
    assert labels(next(batches) for _ in range(3)) == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11, 12, 13, 14],
    ]
    with pytest.raises(KeyError, match="a hole") as raised:
        next(batches)
    assert raised.value.__notes__ == ["while sample 17 was read"]


def test_an_error_of_a_transform_names_the_sample_and_the_epoch():
    with pytest.raises(Stubborn, match="one and two") as raised:
        next(
            data.Loader(
                Squares(), 5, shuffle=False, transform=fail_stubbornly, prefetch=1
            ).batches(3)
        )
    assert raised.value.__notes__ == ["while sample 0 was transformed, in epoch 3"]


def test_an_error_that_pickle_cannot_carry_is_told_in_words():
    with pytest.raises(
        BatchError, match="a worker process raised Stubborn: one and two"
    ) as raised:
        next(
            data.Loader(
                Squares(), 5, shuffle=False, transform=fail_stubbornly, **PROCESSES
            ).batches()
        )
    assert raised.value.__notes__ == ["while sample 0 was transformed, in epoch 0"]


def test_a_worker_process_that_dies_is_an_error():
    with pytest.raises(SettingError, match="a worker process ended without an answer"):
        next(data.Loader(Squares(), 5, transform=ended, **PROCESSES).batches())


def test_what_cannot_be_pickled_is_refused_for_processes():
    with pytest.raises(
        SettingError,
        match="worker_kind='process' sends .* with pickle, which fails here: .*lambda",
    ):
        next(
            data.Loader(
                Squares(), 5, transform=lambda sample: sample, **PROCESSES
            ).batches()
        )


SCRIPT = """
import numpy as np
from deliralike import data
class Local:
    def __len__(self): return 3
    def __getitem__(self, index): return np.full(2, index)
{guard}
    try:
        print(len(list(data.Loader(Local(), 2, workers=1, worker_kind="process"))))
    except data.loader.SettingError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("guard", "wanted"),
    [
        ("if __name__ == '__main__':", "2"),
        ("if True:", "put what it does under if __name__"),
    ],
)
def test_a_script_needs_a_main_guard_and_is_told_so(tmp_path, guard, wanted):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=LIMIT
    )
    assert wanted in done.stdout


STOPS = [
    (way, stop) for way in ({"prefetch": 1}, THREADS) for stop in ("close", "forget")
]
STOPS.append((PROCESSES, "close"))


@pytest.mark.parametrize(("way", "stop"), STOPS)
def test_stopping_early_leaves_nothing_running(way, stop):
    iterator = iter(data.Loader(Squares(), 2, **way))
    next(iterator)
    if stop == "close":
        iterator.close()
        assert list(iterator) == []
    del iterator  # the fixture looks for threads and processes


def wait_until(condition):
    begin = time.perf_counter()
    while not condition():
        assert time.perf_counter() - begin < LIMIT
        time.sleep(0.05)


def no_worker_is_left():
    names = [thread.name for thread in threading.enumerate()]
    return not any(name.startswith("deliralike") for name in names)


@contextmanager
def running(script, *arguments, **pipes):
    """A script in a session of its own, which is over when the block is left, and after `LIMIT` in
    any case."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["", os.getcwd()])}
    command = [sys.executable, script, *arguments]
    with subprocess.Popen(
        command, text=True, env=environment, start_new_session=True, **pipes
    ) as process:

        def end():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        hanging = threading.Timer(LIMIT, end)
        hanging.start()
        try:
            yield process
        finally:
            hanging.cancel()
            hanging.join()
            end()


ORPHANS = """
import numpy as np, time
from deliralike import data
from tests.data.sources import Squares, marked
if __name__ == "__main__":
    loader = data.Loader(Squares(), 2, transform=marked, workers=2, worker_kind="process")
    batches = loader.batches()
    print(*next(batches)["process"], *next(batches)["process"], flush=True)
    time.sleep(3600)
"""


def is_running(process):
    try:
        return (
            Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            != "Z"
        )
    except OSError:
        return False


@pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="looks for processes under /proc"
)
def test_workers_end_when_their_reader_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHANS)
    with running(script, stdout=subprocess.PIPE) as reader:
        workers = [int(word) for word in reader.stdout.readline().split()]
        assert len(workers) == 4
        assert all(is_running(worker) for worker in workers)
        reader.kill()
        wait_until(lambda: not any(is_running(worker) for worker in workers))


def test_ctrl_c_is_left_to_the_reader():
    """A terminal sends it to all processes of a program."""
    with data.Loader(
        Squares(60), 2, transform=marked, workers=1, worker_kind="process"
    ) as loader:
        batches = loader.batches()
        os.kill(next(batches)["process"][0], signal.SIGINT)
        assert len(list(batches)) == 29


@pytest.mark.parametrize(("how", "kept"), [("sleeps", True), ("stops", False)])
def test_a_process_that_hangs_is_named_after_the_timeout_and_killed(
    how, kept, tmp_path
):
    said = tmp_path / "said"
    loader = data.Loader(
        Hanging(how, str(said)), 5, shuffle=False, timeout=4, **PROCESSES
    )
    with loader if kept else nullcontext():
        batches = loader.batches()
        assert len(next(batches)["y"]) == 5
        wait_until(lambda: said.exists() and said.read_text())
        with pytest.raises(
            WorkerTimeout,
            match="timeout=4 seconds: process .* is at batch 1 of epoch 0, samples .5 6 7 8 9.. ",
        ):
            next(batches)
    assert not is_running(int(said.read_text()))


def test_a_thread_that_hangs_is_named_after_the_timeout():
    reached, end = threading.Event(), threading.Event()

    class Waiting(Squares):
        def __getitem__(self, index):
            if index == 7:
                reached.set()
                end.wait()
            return super().__getitem__(index)

    loader = data.Loader(Waiting(), 5, shuffle=False, workers=2, timeout=2)
    batches = loader.batches()
    assert len(next(batches)["y"]) == 5
    assert reached.wait(LIMIT)
    who = "thread worker . is at batch 1 of epoch 0, samples .5 6 7 8 9."
    with pytest.raises(
        WorkerTimeout,
        match=f"within timeout=2 seconds: {who}. It hangs there",
    ):
        next(batches)
    end.set()
    wait_until(no_worker_is_left)


def test_a_batch_transform_that_hangs_is_named_by_its_batch():
    end = threading.Event()
    with pytest.raises(WorkerTimeout, match="is at batch 1 of epoch 3"):
        list(
            data.Loader(
                Squares(),
                20,
                batch_transform=lambda batch: end.wait(),
                workers=1,
                timeout=2,
            ).batches(3, 1)
        )
    end.set()
    wait_until(no_worker_is_left)


def test_a_timeout_error_of_the_samples_own_stays_what_it_is():
    def late(sample):
        raise TimeoutError("the archive does not answer")

    with pytest.raises(TimeoutError, match="the archive") as raised:
        next(
            data.Loader(
                Squares(), 5, transform=late, workers=1, timeout=LIMIT
            ).batches()
        )
    assert not isinstance(raised.value, WorkerTimeout)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "5"])
def test_a_timeout_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(
        SettingError, match="timeout is a number of seconds above 0, or None"
    ):
        data.Loader(Squares(), 5, workers=1, timeout=wrong)


def test_a_timeout_without_workers_is_refused():
    with pytest.raises(
        SettingError, match="timeout=5 limits the wait for workers, and there are none"
    ):
        data.Loader(Squares(), 5, timeout=5)


HANGING = """
import os, sys
from deliralike import data
from deliralike.parallel import SingleProcess
from deliralike.training.interrupt import deferred
from tests.data.sources import Hanging

class LossExchange(SingleProcess):
    def request(self, name):
        super().request(name)
        os.write(2, b"put off\\n")

if __name__ == "__main__":
    how, said, kind = sys.argv[1:]
    with deferred(LossExchange(), lambda: "here"):
        list(data.Loader(Hanging(how, said), 5, shuffle=False, workers=2, worker_kind=kind))
"""


@pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="looks for processes under /proc"
)
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("stops", "process"),
        ("sleeps", "process"),
        ("sleeps", "thread"),
    ],
)
def test_the_second_ctrl_c_ends_a_run_whose_worker_hangs_and_leaves_nothing(
    how, kind, tmp_path
):
    script, said = tmp_path / "script.py", tmp_path / "said"
    script.write_text(HANGING)
    with running(script, how, said, kind, stderr=subprocess.PIPE) as reader:
        wait_until(lambda: said.exists() and said.read_text())
        reader.send_signal(signal.SIGINT)
        assert reader.stderr.readline() == "put off\n"
        time.sleep(0.3)
        assert reader.poll() is None  # the first one waits for the step to end
        reader.send_signal(signal.SIGINT)
        told = reader.stderr.read()  # until it and its workers have ended
        assert reader.wait() != -signal.SIGKILL
    assert (
        "KeyboardInterrupt" in told
        and "while a batch was waited for: " in told
        and "is at batch 1 of epoch 0" in told
    )
    assert kind == "thread" or not is_running(int(said.read_text()))


def test_no_more_than_the_wanted_number_is_made_ahead():
    dataset = Squares(60)
    batches = data.Loader(dataset, 2, prefetch=3).batches()
    next(batches)
    wait_until(lambda: len(dataset.read) == 2 * (1 + 3))  # while nobody asks for them
    time.sleep(0.1)
    assert len(dataset.read) == 2 * (1 + 3)
    batches.close()


def test_an_error_of_a_batch_transform_names_the_batch():
    with pytest.raises(Stubborn) as raised:
        next(data.Loader(Squares(), 5, batch_transform=fail_stubbornly).batches(3, 2))
    assert raised.value.__notes__ == ["while batch 2 was transformed, in epoch 3"]


def test_samples_that_a_process_cannot_import_are_told_so():
    """As in a notebook: the class is in a main module that the workers do not have."""
    code = SCRIPT.format(guard="if True:")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT
    )
    assert (
        "a worker process cannot load the samples or transforms (AttributeError"
        in done.stdout
    )
