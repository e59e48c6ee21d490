"""What a module of PyTorch's does with its share alone: right in replicas, or refused."""

import pytest
import torch

from deliralike import DataParallel
from deliralike.errors import CapabilityError


@pytest.mark.parametrize("setting", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_embeddings_that_look_at_the_whole_batch_are_refused(kind, setting):
    module = torch.nn.Sequential(kind(5, 2, **setting), torch.nn.Linear(2, 2))
    (name,) = setting
    with pytest.raises(
        CapabilityError, match=f"block '0' is an {kind.__name__} with {name}, "
    ):
        DataParallel(module, ["cpu", "cpu"])
