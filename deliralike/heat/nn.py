"""Networks under heat's names."""

from deliralike.heat.multi_gpu import DataParallelMultiGPU

__all__ = ["DataParallelMultiGPU"]
