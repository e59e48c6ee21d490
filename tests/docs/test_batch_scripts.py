"""The batch script for Slurm that the pages have, run by the shell with an srun of our own."""

import os
import subprocess

import pytest

from tests.docs.pages import ROOT, blocks

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
    page = ROOT / "docs/howto/clusters.md"
    texts = [block.text for block in blocks(page) if block.language == "bash"]
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
