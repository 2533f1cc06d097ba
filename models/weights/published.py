"""Published weights by name, fetched once into the usual cache: torchvision's of PyTorch, timm's and CLIP's of the hub.

The content is checked before it is used: the names of torchvision's files end in the start of their SHA-256, and the
hub's cache names a large file by its whole SHA-256. Files are read as all weight files: nothing in them is executed.
"""

import hashlib
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from models.errors import UserError
from models.settings.backbone import TORCHVISION
from models.settings.model import ModelSettings

CONNECT_TIMEOUT_S = 5.0  # until a server counts as unreachable; the hub's client alone would try for most of a minute
FETCH_ERRORS = (OSError, RuntimeError, ValueError)  # of the clients: no network, no such file, wrong hash
HASH_IN_NAME = re.compile(r"-([0-9a-f]{8,})\.")
SHA256 = re.compile(r"[0-9a-f]{64}")
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
TIMM_FILE = "model.safetensors"
CLIP_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def imagenet_file(settings: ModelSettings) -> Path:
    """Return the file of weights trained on ImageNet for the network's image encoder; it is fetched if it is not here.

    Args:
        settings: The model section, with ``weights: imagenet``; it has checked that there are such weights.

    Raises:
        UserError: The file is not in the cache and cannot be fetched, or it is damaged.
    """
    name, key = settings.encoder, f"model.{settings.weights_key}"
    if name not in TORCHVISION:
        from timm.models import get_pretrained_cfg

        variant, _ = settings.timm.chosen(name)
        config = get_pretrained_cfg(variant)
        assert config is not None and config.hf_hub_id, f"{variant} has no published weights"
        return hub_file(config.hf_hub_id, [TIMM_FILE], key, variant)
    norm = "_bn" if name.startswith("vgg") and settings.backbone.norm == "batch" else ""
    return _torchvision_file(name + norm, key)


def _torchvision_file(name: str, key: str) -> Path:
    """Return torchvision's file ``IMAGENET1K_V1`` of the model ``name`` in PyTorch's cache."""
    import torch
    from torchvision.models import get_model_weights

    url = get_model_weights(name)["IMAGENET1K_V1"].url
    file = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(url).path).name)
    in_name = HASH_IN_NAME.search(file.name)
    sha256, what = in_name[1] if in_name else None, f"torchvision's weights of {name}"
    if file.is_file():
        _require_hash(file, sha256, what)
        return file
    _require_reachable(url, file, key, what)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(file), hash_prefix=sha256, progress=True)
    except FETCH_ERRORS as error:
        raise _not_fetched(what, url, file, key, error) from error
    return file


def hub_file(repository: str, names: Sequence[str], key: str, what: str) -> Path:
    """Return a file of the Hugging Face hub, from its cache or fetched into it.

    Args:
        repository: ``owner/name``, with ``@revision`` where it is not the newest.
        names: Names of the file, the preferred first; a name that the repository lacks is passed over.
        key: The setting, for messages.
        what: Whose weights they are, for messages.

    Raises:
        UserError: It is not in the cache and cannot be fetched, or it is damaged.
    """
    from huggingface_hub import hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repository, _, revision = repository.partition("@")
    found = [try_to_load_from_cache(repository, name, revision=revision or None) for name in names]
    file = next((Path(path) for path in found if isinstance(path, str)), None)
    url, here = hf_hub_url(repository, names[0], revision=revision or None), _hub_cache(repository)
    if file is None and not _hub_is_offline():
        _require_reachable(url, here, key, f"the weights of {what}")
    for name in names if file is None else ():
        try:
            file = Path(hf_hub_download(repository, name, revision=revision or None))
            break
        except (*FETCH_ERRORS, EntryNotFoundError) as error:
            absent = isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
            if name == names[-1] or not absent:
                raise _not_fetched(f"the weights of {what}", url, here, key, error) from error
    assert file is not None, "a name at least"
    blob = file.resolve().name
    _require_hash(file, blob if SHA256.fullmatch(blob) else None, f"the weights of {what}")
    return file


def clip_file(config: dict[str, Any], key: str, what: str) -> Path:
    """Return the weight file of a CLIP model, one of ``open_clip.get_pretrained_cfg``.

    Raises:
        UserError: It is not in the cache and cannot be fetched, or it is damaged.
    """
    import open_clip

    if repository := config.get("hf_hub"):
        owner, _, name = str(repository).rpartition("/")
        return hub_file(owner, [name] if name else CLIP_FILES, key, what)
    url = str(config["url"])
    file = Path("~/.cache/clip").expanduser() / Path(urlsplit(url).path).name  # open_clip's own cache
    if not file.is_file():
        _require_reachable(url, file, key, f"the weights of {what}")
    try:
        return Path(open_clip.download_pretrained(config))
    except FETCH_ERRORS as error:
        raise _not_fetched(f"the weights of {what}", url, file, key, error) from error


def _hub_cache(repository: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")


def _hub_is_offline() -> bool:
    """Return whether the hub's client is told to answer from its cache alone; it then says so itself."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _require_reachable(url: str, cache: Path, key: str, what: str) -> None:
    """Refuse at once if the server does not answer; behind a proxy the client finds out itself."""
    parts = urlsplit(url)
    if parts.hostname is None or any(os.environ.get(name) for name in PROXIES):
        return
    try:
        socket.create_connection((parts.hostname, parts.port or 443), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise _not_fetched(what, url, cache, key, f"{parts.hostname} does not answer ({error})") from error


def _not_fetched(what: str, url: str, cache: Path, key: str, reason: object) -> UserError:
    first = str(reason).split("\n")[0] or type(reason).__name__
    return UserError(
        f"{what} are not here and cannot be fetched",
        where=f"{key}, published weights",
        expected=f"internet, or the file in the cache ({cache})",
        found=first,
        hint=f"on a machine with internet download {url}, copy the file here and set {key} to its path",
    )


def _require_hash(file: Path, expected: str | None, what: str) -> None:
    """Refuse a file whose SHA-256 does not begin with ``expected``; None if it is unknown."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if expected is not None and not found.startswith(expected):
        raise UserError(
            f"the file with {what} is damaged",
            where=file,
            expected=f"SHA-256 {expected}",
            found=found[: len(expected)],
            hint="remove it, so that it is fetched again",
        )
