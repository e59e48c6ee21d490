"""Processes that begin a run with other settings or data are refused before the first step, and
told what differs."""

import re

from tests.processes.crews import call, together

pytestmark = together

WANTED = {
    "seed": "order_seed: 0 in process 0, 1 in process 1",
    "rng": "rng: 'portable' in process 0, 'native' in process 1$",
    "length": "samples: 64 in process 0, 61 in process 1$",
    "batches": "batch_size: 8 in process 0, 9 in process 1$",
    "drop_last": "drop_last: False in process 0, True in process 1$",
    "epochs": "epochs: 1 in process 0, 2 in process 1$",
    "accumulate": "accumulate.default: 1 in process 0, 2 in process 1$",
    "rule": "optimizer.default: SGD in process 0, Adam in process 1$",
    "rate": "optimizer.default.lr: 0.1 in process 0, 1.1 in process 1$",
    "clipping": "clip_norm.default: None in process 0, 2.5 in process 1$",
    "average": "average: None in process 0, WeightAverage in process 1$",
    "schedule": "schedule.default: None in process 0, Cosine in process 1$",
    "validation": "samples of the validation: 30 in process 0, 31 in process 1$",
    "loader": "order_seed: 0 in process 0, 7 in process 1$",
    "order": r"the order of the samples, as a checksum: \d+ in process 0, \d+ in process 1$",
}


def test_what_differs_at_the_beginning_is_refused_in_all_processes_and_named():
    first, second = call(
        "torch", 2, "tests.processes.beginnings:begin", [*WANTED, "nothing"]
    )
    for (name, message), *of_processes in zip(
        WANTED.items(), first, second, strict=False
    ):
        for rank, (error, used, messages) in enumerate(of_processes):
            assert error.startswith(f"process {rank} of 2 ("), name
            assert re.search(f"and these differ: .*{message}", error), (name, error)
            assert used == [] and messages == 1, name
    assert first[-1][0] == second[-1][0] == ""
    assert sorted(first[-1][1] + second[-1][1]) == list(
        range(64)
    )  # alike, they use each sample once
