"""What the reference implementations need before they can be imported here."""

from functools import cache

import torch


@cache  # an operator can be named once
def allow_torchvision() -> None:
    """Let torchvision be imported beside a PyTorch that was built without CUDA.

    PyPI's torchvision is built for CUDA. Its compiled operators do not load then, and importing it stops at those
    that it describes without looking. Networks for classification and segmentation use none, so naming them is enough.
    """
    if torch.version.cuda is None:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
