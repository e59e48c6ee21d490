"""What the page on clusters says to type, run where there is none: the batch script for Slurm by
the shell with an srun of our own, and the function for Ray in one worker."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/howto/clusters.md"

# What srun of Slurm 22.05 did with two tasks, of which the first one ended with $CODE: either the
# other one ended by itself with the same code, or srun sent it SIGTERM and ended with the larger
# code of both.
SRUN = """#!/bin/bash
case " $* " in
    *" --kill-on-bad-exit=0 "*) exit $CODE ;;
    *) exit $((CODE > 143 ? CODE : 143)) ;;
esac
"""
SCONTROL = '#!/bin/bash\necho "$@" > requeued\n'


@pytest.fixture
def script(tmp_path):
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    texts = [block.text for block in blocks(PAGE) if block.language == "bash"]
    (tmp_path / "train.sbatch").write_text(texts[0])
    return tmp_path / "train.sbatch"


@pytest.mark.parametrize(
    ("code", "is_requeued"),
    [(0, False), (1, False), (2, False), (137, False), (143, True)],
)
def test_the_batch_script_requeues_what_a_signal_ended_and_no_failure(
    code, is_requeued, script
):
    """A settings mistake ends with 2, and a process that was killed with 137."""
    variables = {
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "CODE": str(code),
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "2",
    }
    done = subprocess.run(["bash", script], env=variables, cwd=script.parent)
    assert done.returncode == code
    requeued = script.parent / "requeued"
    assert requeued.exists() == is_requeued
    if is_requeued:
        assert requeued.read_text() == "requeue 7\n"


class TorchTrainer:
    """Do what Ray's does in a worker: connect it, and call the function in a thread."""

    def __init__(self, function, *, train_loop_config, **of_ray):
        self.function, self.config = function, train_loop_config
        assert of_ray["torch_config"].backend == "gloo"

    def fit(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(self.function, self.config).result()
        dist.destroy_process_group()


def test_the_function_for_ray_trains_in_a_worker_that_ray_has_connected(
    tmp_path, monkeypatch
):
    parts = dict.fromkeys(
        ("FailureConfig", "RunConfig", "ScalingConfig", "TorchConfig"), SimpleNamespace
    )
    module = SimpleNamespace(TorchTrainer=TorchTrainer, **parts)
    for name in ("ray", "ray.train", "ray.train.torch"):
        monkeypatch.setitem(sys.modules, name, module)
    of_worker = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    for name, value in {
        **of_worker,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    (tmp_path / "settings.toml").write_text(
        'network = "mlp"\nnetwork_settings = {hidden = [4]}\nepochs = 1\nbatch_size = 720'
    )
    text = next(block.text for block in blocks(PAGE) if "TorchTrainer" in block.text)
    exec(text.replace("/shared", str(tmp_path)), {})
    assert (tmp_path / "runs/a/weights.safetensors").exists()
    assert not dist.is_initialized()
