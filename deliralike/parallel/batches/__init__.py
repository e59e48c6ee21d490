"""How a batch is split over devices, and how the outputs for its shares become one."""
