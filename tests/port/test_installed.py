"""Classes of installed packages, whose layers are chosen by tables and factories."""

import pytest

from tests.port.corpus import entries, look

pytest.importorskip("libcst")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # their own
KNOWN = {label: (name, arguments, inputs) for label, name, arguments, inputs in entries()}


@pytest.mark.parametrize("label", ["monai UNet", "timm convnext_atto"])
def test_it_is_proved_without_a_touch(label):
    told = look(*KNOWN[label], ["torch"])
    assert told["hands"] == []
    headline, _ = told["torch"]
    assert headline.startswith("PROVED"), headline


def test_what_is_not_a_network_stays_behind():
    """Neither a hub's mixin, nor the encoders of other names, nor checks of arguments."""
    name = "segmentation_models_pytorch Linknet"
    told = look(*KNOWN[name], ["torch"])
    assert told["hands"] == [] and told["lines"] < 800
    headline, _ = told["torch"]
    assert headline.startswith("PROVED"), headline
