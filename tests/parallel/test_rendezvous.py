"""The rendezvous: all get all values, in order; nobody waits for someone who does not come."""

import threading
import time
from functools import partial

import pytest

from deliralike.errors import ReplicaError
from deliralike.parallel.replicas.context import Rendezvous, ReplicaStopped


@pytest.fixture
def hold(within):
    """Return ``hold(rendezvous, visits)``, which runs each party's function in a thread.

    It returns the results or the errors in the order of the parties.
    """

    def run_all(rendezvous, visits, leaves=True):
        outcomes = [None] * len(visits)

        def run(index, visit):
            try:
                outcomes[index] = visit(partial(rendezvous.exchange, index))
            except BaseException as error:
                outcomes[index] = error
            if leaves:
                rendezvous.leave(index)

        threads = [
            threading.Thread(target=run, args=each, daemon=True)
            for each in enumerate(visits)
        ]
        for thread in threads:
            thread.start()
        within(lambda: [thread.join() for thread in threads])
        return outcomes

    return run_all


def test_all_get_all_values_of_their_round_in_the_order_of_parties(hold):
    def visit(index, exchange):
        return [exchange(f"round {number}", (index, number)) for number in range(200)]

    found = hold(Rendezvous(3), [partial(visit, index) for index in range(3)])
    assert (
        found
        == [[[(party, number) for party in range(3)] for number in range(200)]] * 3
    )


def test_one_party_meets_itself():
    rendezvous = Rendezvous(1)
    assert [rendezvous.exchange(0, "a", 1), rendezvous.exchange(0, "b", 2)] == [
        [1],
        [2],
    ]


def test_different_topics_are_an_error_on_both_sides(hold):
    first, second = hold(
        Rendezvous(2),
        [lambda exchange: exchange("bn1", 1), lambda exchange: exchange("bn2", 1)],
    )
    assert isinstance(first, ReplicaError)
    assert isinstance(second, ReplicaError)
    assert str(first) == (
        "replica 0 is at bn1 while replica 1 is at bn2: every replica must run the same layers in "
        "the same order"
    )
    assert str(second).startswith("replica 1 is at bn2 while replica 0 is at bn1")


def test_a_party_that_ends_early_ends_those_who_wait(hold):
    both = lambda exchange: [exchange("bn1", 1), exchange("bn2", 1)]  # noqa: E731
    first, second = hold(Rendezvous(2), [both, lambda exchange: exchange("bn1", 1)])
    assert second == [1, 1]
    with pytest.raises(
        ReplicaError,
        match="replica 0 waits for the others at bn2, but replica 1 ended without coming",
    ):
        raise first


def test_a_party_that_ends_while_another_waits_already(hold):
    late = lambda exchange: time.sleep(0.1)  # noqa: E731
    first, _ = hold(Rendezvous(2), [lambda exchange: exchange("bn1", 1), late])
    assert isinstance(first, ReplicaError)


def test_a_party_that_left_after_its_last_round_is_not_missed(hold):
    late = lambda exchange: (exchange("bn1", 1), time.sleep(0.1), "late")[-1]  # noqa: E731
    assert hold(Rendezvous(2), [lambda exchange: exchange("bn1", 0), late]) == [
        [0, 1],
        "late",
    ]


def test_stopping_ends_those_who_wait_and_those_who_come_later(hold):
    rendezvous = Rendezvous(3)
    threading.Timer(0.05, rendezvous.stop).start()
    waiting = lambda exchange: exchange("bn1", 1)  # noqa: E731
    late = lambda exchange: (time.sleep(0.2), exchange("bn1", 1))  # noqa: E731
    found = hold(rendezvous, [waiting, waiting, late], leaves=False)
    assert [type(each) for each in found] == [ReplicaStopped] * 3


def test_being_stopped_is_not_an_ordinary_exception():
    """So that a loop in a network that survives exceptions does not survive this one."""
    assert not issubclass(ReplicaStopped, Exception)
