"""Ways that send less come to the same loss; how long they take over a slow link is a benchmark."""

import pytest

from tests.hosts.ways import WAYS
from tests.processes.crews import call, together


@together
def test_what_sends_less_ends_with_the_loss_of_what_sends_everything():
    """Two nodes of two processes, which here are one machine: what is sent when does not depend on
    the link."""
    losses = call("torch", 4, "tests.hosts.ways:final_losses", [24], 30)
    assert all(each == losses[0] for each in losses)
    wanted = losses[0]["DistributedDataParallel"]
    assert wanted < 1.0  # of ln 10 = 2.3 in the beginning
    assert losses[0] == pytest.approx(dict.fromkeys(WAYS, wanted), rel=0.1)
    assert losses[0]["ours"] == pytest.approx(wanted, rel=1e-4)
