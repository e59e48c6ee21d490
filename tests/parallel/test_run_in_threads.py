"""Jobs side by side: results, failures, interrupts, what reaches the threads and what is put back
afterwards."""

import gc
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from contextvars import ContextVar
from functools import partial

import numpy as np
import pytest
import threadpoolctl

from deliralike.parallel.replicas.context import Rendezvous
from deliralike.parallel.replicas.run_in_threads import (
    blas_threads,
    run_in_threads,
    run_in_turn,
)
from tests.parallel.networks import Torn

PLACES = ("replica 0 on a", "replica 1 on b", "replica 2 on c")
run_in_threads_module = sys.modules["deliralike.parallel.replicas.run_in_threads"]
VARIABLE = ContextVar("variable", default="unset")
IN_TURN = lambda jobs, places, rendezvous: run_in_turn(jobs, places)  # noqa: E731


def tear():
    raise Torn("fc", 3, 4)


#: Seconds: how long a job runs that nobody stops, and until when it is stopped, however busy the
#: machine is.
ENDLESS, SOON = 120.0, 60.0


def endless(log):
    """Python that never ends by itself within the time of a test, and never comes to the
    rendezvous.

    On Python 3.13 an exception that comes from outside at the end of ``while condition:`` passes by
    ``finally`` (python/cpython#130279), Ctrl-C's too.
    """
    end = time.monotonic() + ENDLESS
    try:
        log.append("began")
        while True:
            if time.monotonic() >= end:
                break
    finally:
        log.append("ended")


def wait_for(log, begun):
    """Wait until so many endless jobs run: one that has not begun is not stopped but left out."""
    while len(log) < begun:
        time.sleep(0.001)


def tear_beside(log, begun):
    wait_for(log, begun)
    tear()


@pytest.fixture
def run(within):
    """``run(jobs)``: their results side by side, within two minutes."""

    def bounded(jobs, way=run_in_threads, rendezvous=None):
        return within(
            way, jobs, PLACES[: len(jobs)], rendezvous or Rendezvous(len(jobs))
        )

    return bounded


@pytest.mark.parametrize("way", [run_in_threads, IN_TURN])
def test_results_come_in_the_order_of_jobs(run, way):
    jobs = [
        lambda wait=wait, name=name: (time.sleep(wait), name)[1]
        for wait, name in [(0.1, "a"), (0.0, "b"), (0.05, "c")]
    ]
    assert run(jobs, way) == ["a", "b", "c"]


def test_jobs_run_at_the_same_time(run):
    barrier = threading.Barrier(3, timeout=SOON)
    run([barrier.wait] * 3)
    assert not barrier.broken


def test_each_job_has_a_thread_of_its_own(run):
    threads = run([threading.current_thread] * 3)
    assert len(set(threads) - {threading.current_thread()}) == 3


@pytest.mark.parametrize("way", [run_in_threads, IN_TURN])
def test_a_failure_keeps_its_type_its_attributes_and_names_its_place(run, way):
    with pytest.raises(Torn, match="fc: wanted 3, came 4") as caught:
        run([lambda: 1, tear, lambda: 3], way)
    assert (caught.value.layer, caught.value.came) == ("fc", 4)
    assert caught.value.__notes__ == ["raised in replica 1 on b"]


def test_the_traceback_reaches_the_line_that_raised(run):
    with pytest.raises(Torn) as caught:
        run([lambda: 1, tear])
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert lines[-1] == 'raise Torn("fc", 3, 4)'


@pytest.fixture
def hurried():
    """Threads that take turns as often as the interpreter lets them, so that they meet at every
    step.

    Without the collector, in whose callbacks Python swallows an exception with a warning.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.disable()
    yield
    gc.enable()
    sys.setswitchinterval(before)


def test_of_several_failures_one_is_raised_and_no_thread_complains(within, hurried):
    """Threads that fail at the same moment stop each other in any order; what escapes from a thread
    is a warning."""
    for _ in range(50):
        arrived = []

        def fail(arrived=arrived):
            arrived.append(None)
            while (
                len(arrived) < 6
            ):  # no lock: one that a stopped thread had just taken would never be given back
                time.sleep(0)
            tear()

        with pytest.raises(Torn) as caught:
            within(run_in_threads, [fail] * 6, range(6), Rendezvous(6))
        assert len(caught.value.__notes__) == 1


def test_those_who_wait_are_stopped_when_one_fails(run):
    rendezvous = Rendezvous(3)
    begin = time.monotonic()
    waiting = lambda index: rendezvous.exchange(index, "bn1", 1)  # noqa: E731
    with pytest.raises(Torn):
        run(
            [partial(waiting, 0), tear, partial(waiting, 2)],
            lambda jobs, places, _: run_in_threads(jobs, places, rendezvous),
        )
    assert time.monotonic() - begin < SOON


def test_those_who_compute_are_stopped_when_one_fails(run):
    log, begin = [], time.monotonic()
    with pytest.raises(Torn):
        run(
            [partial(endless, log), partial(tear_beside, log, 2), partial(endless, log)]
        )
    assert time.monotonic() - begin < SOON
    assert log == ["began", "began", "ended", "ended"]


def test_a_job_that_swallowed_being_stopped_is_stopped_again(run):
    """As Python does where the exception comes in a destructor."""
    log, begin = [], time.monotonic()

    def stubborn():
        try:
            endless(log)
        except BaseException:
            endless(log)

    with pytest.raises(Torn):
        run([stubborn, partial(tear_beside, log, 1)])
    assert time.monotonic() - begin < SOON
    assert log == ["began", "ended"] * 2


def test_results_are_freed_at_once(run):
    class Large:
        pass

    gc.disable()
    try:
        results = run([Large, Large])
        seen = [weakref.ref(result) for result in results]
        del results
        assert [reference() for reference in seen] == [None, None]
    finally:
        gc.enable()


def test_a_job_that_had_not_begun_when_another_failed_does_not_begin(run, monkeypatch):
    started = run_in_threads_module._Worker.start

    def slowly(worker):
        started(worker)
        worker.ended.wait(SOON if worker.index == 0 else 0)

    monkeypatch.setattr(run_in_threads_module._Worker, "start", slowly)
    begun = []
    with pytest.raises(Torn):
        run([tear, lambda: begun.append(1)])
    assert begun == []


def test_an_error_that_a_library_made_of_being_stopped_does_not_hide_the_first(run):
    rendezvous = Rendezvous(2)

    def wrapping():
        try:
            rendezvous.exchange(0, "bn1", 1)
        except BaseException as error:
            raise RuntimeError("a callback failed") from error

    with pytest.raises(Torn):
        run([wrapping, lambda: (time.sleep(0.05), tear())], rendezvous=rendezvous)


@pytest.fixture
def interruptible():
    """Python raises on an interrupt, also where a shell started the suite in the background and had
    it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_the_caller_stops_the_jobs():
    log = []
    main = threading.get_ident()

    def interrupt():
        wait_for(log, 2)
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_in_threads(
            [partial(endless, log), partial(endless, log)], PLACES[:2], Rendezvous(2)
        )
    assert time.monotonic() - begin < SOON
    assert log == ["began", "began", "ended", "ended"]
    interrupter.join()


@pytest.mark.parametrize("way", [run_in_threads, IN_TURN])
def test_context_variables_reach_the_jobs_and_do_not_come_back(run, way):
    def job(name):
        seen = VARIABLE.get()
        VARIABLE.set(name)
        return seen

    token = VARIABLE.set("from the caller")
    try:
        assert (
            run([partial(job, "a"), partial(job, "b")], way) == ["from the caller"] * 2
        )
        assert VARIABLE.get() == "from the caller"
    finally:
        VARIABLE.reset(token)


def blas_limits():
    return [
        pool["num_threads"]
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]


@pytest.fixture
def two_threads():
    """Two threads in each BLAS, so that one is a change wherever the suite runs."""
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_blas_threads_are_held_and_put_back(two_threads):
    before = blas_limits()
    assert before
    with blas_threads(1):
        assert set(blas_limits()) == {1}
    assert blas_limits() == before


def test_blas_threads_are_put_back_after_an_error(two_threads):
    before = blas_limits()
    with pytest.raises(Torn), blas_threads(1):
        tear()
    assert blas_limits() == before


# Threads that are kept
# -----------------------------------------------------------------------------


def test_threads_are_kept_for_the_next_call_unless_their_job_broke_off(run):
    kept = set(run([threading.current_thread] * 3))
    assert set(run([threading.current_thread] * 2)) & kept
    seen = []

    def broken():
        seen.append(threading.current_thread())
        tear()

    with pytest.raises(Torn):
        run([broken, threading.current_thread])
    assert seen[0] not in run([threading.current_thread] * 3)


def test_being_stopped_does_not_reach_the_next_job_of_a_thread(within, hurried):
    """A stop that is sent while a job ends must not come later."""
    for _ in range(50):
        barrier = threading.Barrier(3)

        def ends(barrier=barrier):
            barrier.wait()

        def fails(barrier=barrier):
            barrier.wait()
            tear()

        with pytest.raises(Torn):
            within(run_in_threads, [ends, fails, ends], range(3), Rendezvous(3))
        assert (
            within(
                run_in_threads, [lambda: sum(range(50))] * 3, range(3), Rendezvous(3)
            )
            == [1225] * 3
        )


FORKING = """
import os, signal
from deliralike.parallel.replicas.context import Rendezvous
from deliralike.parallel.replicas.run_in_threads import run_in_threads
run = lambda: run_in_threads([lambda: 1, lambda: 2], "ab", Rendezvous(2))
assert run() == [1, 2]
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that waits for threads that it has not
    os._exit(0 if run() == [1, 2] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run())
"""


def test_a_forked_process_has_threads_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "0 [1, 2]\n", done.stderr
