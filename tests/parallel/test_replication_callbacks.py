"""Replication callbacks, and what code may ask of the replica that it runs in."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from deliralike import random
from deliralike.parallel import (
    CallbackContext,
    Replica,
    call_replication_callbacks,
    current_replica,
)
from deliralike.parallel.replicas.context import Rendezvous, entered


class Block:
    """Remembers what it heard."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def __data_parallel_replicate__(self, context, copy_id):
        self.context = context
        self.log.append((self.name, copy_id))


def test_the_master_hears_first_and_each_copy_its_own_number():
    log = []
    call_replication_callbacks([[Block("a", log), Block("b", log)] for _ in range(3)])
    assert log == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_copies_of_one_block_share_a_context_and_different_blocks_do_not():
    replicas = [[Block("a", []), Block("b", [])] for _ in range(3)]
    call_replication_callbacks(replicas)
    contexts = [
        {id(replica[position].context) for replica in replicas} for position in range(2)
    ]
    assert [len(each) for each in contexts] == [1, 1]
    assert contexts[0] != contexts[1]
    assert isinstance(replicas[0][0].context, CallbackContext)


def test_blocks_without_a_callback_are_passed_by():
    log = []
    call_replication_callbacks(
        [[object(), Block("a", log)], [object(), Block("a", log)]]
    )
    assert log == [("a", 0), ("a", 1)]


# The replica
# -----------------------------------------------------------------------------


def replica(index, sizes=(3, 2, 2), rendezvous=None):
    return Replica(
        index=index,
        device="cpu",
        sizes=sizes,
        rendezvous=rendezvous or Rendezvous(len(sizes)),
        all_sum=None,
    )


@pytest.mark.parametrize(("index", "first"), [(0, 0), (1, 3), (2, 5)])
def test_a_replica_knows_its_first_sample(index, first):
    assert replica(index).first_sample == first


def test_a_replica_says_what_it_is():
    assert str(replica(1)) == "replica 1 of 3 on cpu"


def test_outside_of_replicas_there_is_none():
    assert current_replica() is None


def test_inside_of_a_replica_it_is_found_and_the_outer_one_comes_back():
    outer, inner = replica(0), replica(1)
    with entered(outer):
        with entered(inner):
            assert current_replica() is inner
        assert current_replica() is outer
    assert current_replica() is None


def test_a_replica_is_left_after_an_error():
    with contextlib.suppress(RuntimeError), entered(replica(0)):
        raise RuntimeError
    assert current_replica() is None


def test_a_replica_continues_the_portable_stream_where_the_samples_before_it_end():
    with random.portable(seed=4, step=9, first_sample=100), entered(replica(2)):
        assert random.current()[:3] == (4, 9, 105)
    with random.portable(seed=4, step=9, first_sample=100), entered(replica(0)):
        assert random.current()[:3] == (4, 9, 100)


def test_replicas_inside_of_a_replica_continue_its_own_part_of_the_stream():
    with (
        random.portable(seed=4),
        entered(replica(1)),
        entered(replica(1, sizes=(1, 1))),
    ):
        assert random.current().first_sample == 3 + 1


def test_without_a_portable_stream_a_replica_opens_none():
    with entered(replica(1)):
        assert random.current() is None


def test_a_replica_exchanges_by_its_own_index(within):
    rendezvous = Rendezvous(2)
    both = [replica(index, (1, 1), rendezvous) for index in range(2)]
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(both[1].exchange, "a count", "second")
        assert within(both[0].exchange, "a count", "first") == ["first", "second"]
        assert waiting.result(5) == ["first", "second"]
