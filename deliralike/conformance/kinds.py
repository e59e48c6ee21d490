"""Types that many modules speak of, each under one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Axes = tuple[int, ...]  # numbers of axes, such as an order of them
Batch = tuple[Any, ...]  # what a loss takes after its network
Given = tuple[
    tuple[Any, ...], dict[str, Any]
]  # the arguments ``(args, kwargs)`` of a call
Function = Callable[..., Any]
Named = Mapping[str, Any]  # arrays or settings by name
Arrays = Mapping[str, np.ndarray]
Tensors = dict[str, np.ndarray]  # arrays of one's own
