import pytest

from tests.published.host import Host

PUBLISHER = "https://download.pytorch.org"


def at_host(request, address):
    """A function of huggingface_hub that asks the host of the tests in the place of PyTorch's."""

    def asking(*arguments, **settings):
        words = []
        for each in arguments:
            is_text = isinstance(each, str)
            words.append(each.replace(PUBLISHER, address) if is_text else each)
        return request(*words, **settings)

    return asking


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host on the loopback address, and caches that are empty."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http

    from tests.published import checking

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    _http.close_session()  # it knows the proxies of the environment
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    with Host() as host:
        template = host.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", host.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        for module, name in ((file_download, "http_get"), (checking, "http_backoff")):
            monkeypatch.setattr(module, name, at_host(getattr(module, name), host.url))
        yield host
    _http.close_session()
