"""`compare` of networks on two backends, both on the device."""

from collections.abc import Iterator

from benchmarks.gpu_steps import Record, device_of
from benchmarks.gpu_steps.equality import CASES
from deliralike import backends
from deliralike.conformance import compare

PROVED = ("resnet18", "vit_b_16", "unet")
LEVELS = ("L0", "L1", "L3")


def proved(kind: str, reference: str, candidate: str) -> Iterator[Record]:
    """Prove that networks of two backends are the same."""
    sides = [backends.get(name) for name in (reference, candidate)]
    devices = [device_of(backend, kind) for backend in sides]
    for case in CASES:
        if case.network not in PROVED:
            continue
        try:
            networks = [
                case.built(backend, device, "float32")
                for backend, device in zip(sides, devices, strict=True)
            ]
            proof = compare(*networks, case.batch(), levels=LEVELS)
            yield {
                "network": case.title,
                "devices": [network.device_name for network in networks],
                "proved": proof.proved,
                "report": str(proof)[:4000],
            }
        except Exception as error:  # noqa: BLE001 (the other networks are wanted)
            yield {
                "network": case.title,
                "failed": f"{type(error).__name__}: {error}"[:1500],
            }
