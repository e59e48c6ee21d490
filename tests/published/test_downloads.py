"""Files from a host that misbehaves: what is kept is whole and the right one, or nothing is."""

import hashlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from deliralike.errors import DownloadError, SettingError, WeightFileError
from deliralike.weights import downloads
from deliralike.weights.downloads import HubFile, WebFile
from tests.published.host import COMMIT

CONTENT = bytes(range(256)) * 5
SHA = hashlib.sha256(CONTENT).hexdigest()
PATH = "/models/net-0.pth"
REPOSITORY = "/owner/net/resolve/main"


@pytest.fixture
def file(host):
    host.files[PATH] = CONTENT
    host.files[f"/elsewhere{PATH}"] = CONTENT
    return WebFile(f"https://download.pytorch.org{PATH}", SHA[:8])


@pytest.fixture
def of_hub(host):
    path = f"{REPOSITORY}/model.safetensors"
    for place in ("", "/elsewhere"):
        host.files[f"{place}{path}"] = CONTENT
    return HubFile("owner/net"), path


@pytest.mark.parametrize(
    "manners",
    [[], ["cut"], ["slow"], ["busy"], ["redirect"], ["cut", "busy", "redirect"]],
    ids=lambda value: " ".join(value) or "whole",
)
def test_a_file_arrives_whole_from_a_host_that(manners, host, file):
    host.manners[PATH] = list(manners)
    path = file.fetch()
    assert path.read_bytes() == CONTENT
    count = len(host.gets())
    assert count == len(manners) + 1
    assert file.fetch() == path
    assert len(host.gets()) == count  # the second time it came from the cache
    assert [
        entry.name for entry in path.parent.iterdir() if entry.suffix == ".part"
    ] == []


def test_a_file_of_the_hub_comes_by_the_same_way(host, of_hub):
    file, path = of_hub
    host.manners[path] = ["cut", "busy", "redirect"]
    assert file.fetch().read_bytes() == CONTENT
    assert file.fetch() == file.stored()  # the second time it comes from the cache
    assert len([where for where, _ in host.gets() if where.endswith(path)]) == 4


def test_the_token_goes_to_the_hub_and_to_no_other_host(
    host, of_hub, file, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub_file, path = of_hub
    hub_file.fetch()
    file.fetch()
    tokens = {(path, "Bearer hf_secret"), (PATH, "")}
    # others of this machine may knock at the port
    assert {each for each in host.tokens if each[0] in (path, PATH)} == tokens


def test_what_a_transfer_left_when_it_was_broken_off_is_written_over(host, file):
    part = file.place.with_name(f"{file.place.name}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"other" * 400)
    assert file.fetch().read_bytes() == CONTENT
    assert host.gets() == [(PATH, "")]


def test_another_content_than_the_published_one_is_refused_and_not_kept(host, file):
    host.files[PATH] = b"changed" + CONTENT
    with pytest.raises(
        WeightFileError, match=f"SHA-256 begins with [0-9a-f]{{8}}, wanted {SHA[:8]}"
    ):
        file.fetch()
    assert [entry.suffix for entry in file.place.parent.iterdir()] == [".lock"]


def test_a_file_that_was_changed_in_the_cache_is_refused(host, file):
    path = file.fetch()
    path.write_bytes(b"changed")
    with pytest.raises(WeightFileError, match="Delete it to download it again"):
        file.fetch()


@pytest.mark.parametrize(
    ("path", "manners", "words"),
    [
        ("/models/gone-0.pth", [], "the server answered 404 Not Found"),
        (PATH, ["broken"], "the server answered 500"),
        (PATH, ["closed"], "the server answered 401 .*HF_TOKEN"),
        (PATH, ["busy"] * 6, "the server answered 429 .*again after 1 seconds"),
    ],
)
def test_a_host_that_refuses_is_quoted(path, manners, words, host, file):
    host.manners[path] = manners
    file = WebFile(f"https://download.pytorch.org{path}", SHA[:8])
    with pytest.raises(DownloadError, match=words):
        file.fetch()
    assert not file.place.exists()


def test_a_cache_that_cannot_be_written_is_one_error(host, file, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "file"))
    with pytest.raises(
        DownloadError, match="cannot be downloaded: .*Not a directory: '[^']*'$"
    ):
        file.fetch()


def test_a_full_disk_is_one_error(host, file):
    part = file.place.with_name(f"{file.place.name}.part")
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(
        DownloadError, match="cannot be downloaded: .*No space left on device"
    ):
        file.fetch()


def test_a_host_that_is_not_there_is_no_answer(host):
    with pytest.raises(DownloadError, match="cannot be downloaded") as raised:
        WebFile("http://127.0.0.1:1/net.pth").fetch()
    assert raised.value.status is None
    assert "Without a network: fetch it elsewhere and put it at" in str(raised.value)


def test_several_at_once_download_one_time(host, file):
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: file.fetch(), range(4)))
    assert len(paths) == 1
    assert len(host.gets()) == 1


def test_offline_takes_what_is_there_and_refuses_the_rest(host, file, monkeypatch):
    other = WebFile("https://download.pytorch.org/models/other-0.pth")
    path = file.fetch()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    from huggingface_hub.utils import _http

    _http.close_session()
    assert file.fetch() == path
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE=1 forbids the network"):
        other.fetch()
    with pytest.raises(
        DownloadError, match=re.escape("'hf download me/net --revision main'")
    ):
        HubFile("me/net").fetch()
    assert len(host.gets()) == 1


def test_a_proxy_of_the_environment_is_used(host, monkeypatch):
    monkeypatch.setenv("http_proxy", host.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    host.files["http://weights.invalid/net.bin"] = CONTENT
    assert (
        WebFile("http://weights.invalid/net.bin", SHA).fetch().read_bytes() == CONTENT
    )


def test_folders_of_the_environment_are_used(monkeypatch, tmp_path):
    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = [downloads.web_cache()]
    for name in ("XDG_CACHE_HOME", "TORCH_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
        found.append(downloads.web_cache())
    assert [path.as_posix().replace(tmp_path.as_posix(), "") for path in found[1:]] == [
        "/XDG_CACHE_HOME/torch/hub/checkpoints",
        "/TORCH_HOME/hub/checkpoints",
    ]
    assert found[0].parts[-4:] == (".cache", "torch", "hub", "checkpoints")


def test_a_file_of_several_in_a_repository_is_named(host):
    file = HubFile("owner/net", filenames=("net_10.pth",))
    with pytest.raises(DownloadError, match=re.escape("net_10.pth of owner/net@main")):
        file.fetch()


def test_a_repository_gives_safetensors_first(host, tmp_path):
    host.files[f"{REPOSITORY}/models/model.pt"] = b"a bundle"
    assert HubFile("owner/net").fetch().name == "model.pt"
    shutil.rmtree(tmp_path / "hub")
    host.files[f"{REPOSITORY}/pytorch_model.bin"] = b"a pickle"
    assert HubFile("owner/net").fetch().name == "pytorch_model.bin"
    host.files[f"{REPOSITORY}/model.safetensors"] = CONTENT
    file = HubFile("owner/net")
    path = file.fetch()
    assert (path.name, path.parent.name, path.read_bytes()) == (
        "model.safetensors",
        COMMIT,
        CONTENT,
    )
    assert file.stored() == path


def test_a_file_of_a_repository_that_was_changed_in_the_cache_is_refused(host):
    host.files[f"{REPOSITORY}/model.safetensors"] = CONTENT
    path = HubFile("owner/net").fetch()
    path.resolve().write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(
        WeightFileError, match="is not what was published as owner/net@main"
    ):
        HubFile("owner/net").fetch()


_PATHS = [
    "../../../../../../written",
    "/tmp/written",
    "",
    "\x1b[2J",
    "d" * 5000,
    "main",
]


@pytest.mark.parametrize("name", _PATHS)
def test_a_hash_that_is_a_path_is_refused_before_anything_is_written(
    name, host, tmp_path
):
    host.files[f"{REPOSITORY}/model.safetensors"] = CONTENT
    host.etags[f"{REPOSITORY}/model.safetensors"] = name
    with pytest.raises(DownloadError, match="the server gave an ETag that is no hash"):
        HubFile("owner/net").fetch()
    assert host.gets() == []


@pytest.mark.parametrize("name", ["../../../../written", "/tmp/written", "main"])
def test_a_commit_that_is_a_path_is_refused(name, host):
    host.files[f"{REPOSITORY}/model.safetensors"] = CONTENT
    host.commit = name
    with pytest.raises(DownloadError, match="the server gave a commit that is no hash"):
        HubFile("owner/net").fetch()
    assert host.gets() == []


@pytest.mark.parametrize(
    "revision", ["../../x", "/x", "a//b", "a/../../b", "", "\x1b[2J"]
)
def test_a_revision_or_name_that_is_a_path_is_refused(revision):
    with pytest.raises(
        SettingError, match="is no revision or file of 'owner/net', wanted"
    ):
        HubFile("owner/net", revision)
    with pytest.raises(
        SettingError, match="is no revision or file of 'owner/net', wanted"
    ):
        HubFile("owner/net", filenames=(revision,))


def test_a_small_file_is_held_against_its_hash_of_git(host):
    """``printf hello | git hash-object --stdin`` gives b6fc4c62…."""
    path = f"{REPOSITORY}/model.safetensors"
    host.files[path] = b"hello"
    host.etags[path] = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"
    assert HubFile("owner/net").fetch().read_bytes() == b"hello"
    host.files[path.replace("net", "other")] = b"hellO"
    host.etags[path.replace("net", "other")] = host.etags[path]
    with pytest.raises(WeightFileError, match="its hash of git begins with"):
        HubFile("owner/other").fetch()


def test_a_repository_without_weights_is_an_error(host):
    with pytest.raises(
        DownloadError, match=re.escape("owner/none@main on the Hugging Face Hub")
    ):
        HubFile("owner/none").fetch()


def test_a_repository_without_a_proper_name_is_refused(host):
    with pytest.raises(
        SettingError, match="'no such/thing/at all' is no repository of the Hub"
    ):
        HubFile("no such/thing/at all").fetch()


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub.constants", None)
    with pytest.raises(
        ImportError, match=re.escape("pip install 'deliralike[weights]'")
    ):
        WebFile("https://download.pytorch.org/x.pth").fetch()
