import pytest

from tests.published.host import Host


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host on the loopback address, and caches that are empty."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    _http.close_session()  # it knows the proxies of the environment
    monkeypatch.setenv("DELIRALIKE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    with Host() as host:
        template = host.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", host.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv(
            "DELIRALIKE_MIRRORS", f"https://download.pytorch.org={host.url}"
        )
        yield host
    _http.close_session()
