"""Ten classes in other people's habits, beside what `port` makes of them."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("libcst")

from tests.port.gallery import FOLDER, NETWORKS, formatted, ported
from tests.port.proving import proved


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gallery_shows_what_port_writes_and_that_is_proved(name):
    found = ported(name)
    assert found.hands == []
    assert formatted(found.source) == (FOLDER / "after" / f"{name}.py").read_text()
    proved(found, "chainer")


@pytest.mark.parametrize("name", ["inverted", "unet", "windows", "tagger", "language"])
def test_a_network_of_the_gallery_is_proved_on_jax(name):
    proved(ported(name), "jax")
