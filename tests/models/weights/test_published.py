"""Published weights by name: which networks have them, the fetch into the cache, and a machine without internet."""

import hashlib
import re
import urllib.request

import pytest
import timm
import torch
import torchvision
from pydantic import ValidationError
from safetensors.torch import save_file

from models.build import check_weights, new_model, weight_files
from models.errors import UserError
from models.label_aware import label_embeddings
from models.registry import ModelSpec
from models.settings.model import LabelSettings, ModelSettings
from models.settings.timm import FAMILIES
from models.weights.published import clip_file, hub_file

RESNET18 = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.value
NOBODY = "https://127.0.0.1:9"  # refuses connections


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Empty caches of PyTorch and of the hub, and no proxy that could answer for a server."""
    from huggingface_hub import constants

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def resnet18(caches, monkeypatch):
    """torchvision's file of a ResNet-18, on a server that is a folder."""
    model = torchvision.models.resnet18(weights=None)
    torch.save(model.state_dict(), caches / "resnet18.pth")
    path = (caches / "resnet18.pth").rename(caches / f"resnet18-{sha256(caches / 'resnet18.pth')[:8]}.pth")
    monkeypatch.setattr(RESNET18, "url", path.as_uri())
    return model, path


@pytest.mark.parametrize("name", ["resnet18", "ctran"])
def test_torchvisions_weights_are_fetched_once_into_pytorchs_cache(resnet18, caches, name, capfd):
    model, path = resnet18
    settings = ModelSettings(name=name, backbone={"weights": "imagenet"})
    check_weights(settings, 32)
    cached = caches / "torch" / "hub" / "checkpoints" / path.name
    assert weight_files(settings) == [cached] and cached.read_bytes() == path.read_bytes()
    out, err = capfd.readouterr()
    assert "100%" in err and not out  # progress, beside what a command prints
    path.unlink()  # from the cache from now on
    built = new_model(settings, ModelSpec(("a", "b"), 32), 0)
    assert torch.equal(built.backbone.layer4[1].conv2.weight, model.layer4[1].conv2.weight)


def test_a_file_with_another_hash_is_refused(resnet18, caches):
    _, path = resnet18
    with path.open("ab") as file:
        file.write(b"more")
    settings = ModelSettings(name="resnet18", backbone={"weights": "imagenet"})
    with pytest.raises(UserError, match=r"cannot be fetched[\s\S]*invalid hash value[\s\S]*" + path.name):
        weight_files(settings)
    cached = caches / "torch" / "hub" / "checkpoints" / path.name
    assert not cached.exists()
    cached.write_bytes(b"damaged later")
    with pytest.raises(UserError, match=r"is damaged[\s\S]*remove it"):
        weight_files(settings)


def test_nothing_in_a_fetched_file_is_executed(caches, monkeypatch):
    torch.save({"conv1.weight": FAMILIES["convmixer"]}, caches / "w.pth")  # holds objects of a class
    path = (caches / "w.pth").rename(caches / f"w-{sha256(caches / 'w.pth')[:8]}.pth")
    monkeypatch.setattr(RESNET18, "url", path.as_uri())
    with pytest.raises(UserError, match="Python objects, which are not executed"):
        check_weights(ModelSettings(name="resnet18", backbone={"weights": "imagenet"}), 32)


@pytest.mark.parametrize(
    ("name", "section", "url"),
    [
        ("fmman", "backbone", f"{NOBODY}/resnet18-f37072fd.pth"),
        ("vit_tiny", "timm", r"https://[^ ]*/timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k/resolve/main/model.safet"),
    ],
)
def test_without_internet_the_error_says_where_to_get_the_file(monkeypatch, caches, name, section, url):
    from models.weights import published

    monkeypatch.setattr(RESNET18, "url", f"{NOBODY}/resnet18-f37072fd.pth")

    def refused(*_, **__):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(published.socket, "create_connection", refused)
    monkeypatch.setattr(urllib.request, "urlopen", refused)
    with pytest.raises(UserError) as caught:
        check_weights(ModelSettings(name=name, **{section: {"weights": "imagenet"}}), 224)
    text = str(caught.value)
    for words in ("does not answer", f"set model.{section}.weights to its path", str(caches)):
        assert words in text
    assert re.search(f"internet download {url}", text)


def in_hub_cache(caches, repository, name, content):
    """Lay a file into the hub's cache as its client does; return the blob."""
    home = caches / "hub" / f"models--{repository.replace('/', '--')}"
    for folder in ("blobs", "refs", "snapshots/abc"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    content.rename(blob := home / "blobs" / sha256(content))
    (home / "refs" / "main").write_text("abc")
    (home / "snapshots" / "abc" / name).symlink_to(blob)
    return blob


def test_timms_weights_come_from_the_hubs_cache(caches):
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    save_file(model.state_dict(), caches / "vit.safetensors")
    repository = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    blob = in_hub_cache(caches, repository, "model.safetensors", caches / "vit.safetensors")
    settings = ModelSettings(name="vit_tiny", timm={"weights": "imagenet"})
    built = new_model(settings, ModelSpec(("a",), 32), 0)  # positions of 224 pixels are resampled
    assert torch.equal(built.backbone.net.blocks[3].mlp.fc1.weight, model.blocks[3].mlp.fc1.weight)
    blob.write_bytes(b"damaged")
    with pytest.raises(UserError, match="vit_tiny_patch16_224 is damaged"):
        check_weights(settings, 32)


def test_a_file_of_the_hub_is_fetched_by_the_first_name_that_there_is(caches, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    from models.weights import published

    (caches / "new").write_bytes(b"weights")

    def download(repository, name, revision=None):
        assert (repository, revision) == ("timm/clip", "v2")
        if name == "second.bin":
            return str(in_hub_cache(caches, repository, name, caches / "new").parents[1] / "snapshots" / "abc" / name)
        raise EntryNotFoundError("404")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(published.socket, "create_connection", lambda *_, **__: Connection())
    file = hub_file("timm/clip@v2", ["first.safetensors", "second.bin"], "model.x", "x")
    assert file.read_bytes() == b"weights"
    with pytest.raises(UserError, match=r"cannot be fetched[\s\S]*404[\s\S]*model.x"):
        hub_file("timm/clip@v2", ["first.safetensors"], "model.x", "x")


class Connection:
    def close(self):
        pass


def test_clips_weights_come_from_the_hubs_cache_or_an_address(caches, monkeypatch):
    (caches / "new").write_bytes(b"weights")
    in_hub_cache(caches, "timm/clip", "open_clip_model.safetensors", caches / "new")
    assert clip_file({"url": NOBODY, "hf_hub": "timm/clip/"}, "model.x", "clip").read_bytes() == b"weights"
    monkeypatch.setenv("HOME", str(caches))
    with pytest.raises(UserError, match=r"does not answer[\s\S]*download https://127.0.0.1:9/clip.pt"):
        clip_file({"url": f"{NOBODY}/clip.pt"}, "model.x", "clip")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "lenet5"}, "no published weights of lenet5, only of resnet18, resnet34"),
        ({"name": "resnet9"}, "no published weights of resnet9"),
        ({"name": "mlp_mixer"}, "no published weights of mixer_s16_224; choose another variant"),
        ({"name": "resnet18", "backbone": {"width": 0.25}}, "with backbone.width 0.25 instead of 1.0"),
        ({"name": "fmman", "backbone": {"stem": "small"}}, "backbone.stem small instead of imagenet"),
        ({"name": "resnet34", "backbone": {"norm": "group"}}, "backbone.norm group instead of default"),
        ({"name": "vgg11", "channels": 1}, "channels 1 instead of 3"),
        ({"name": "vit_tiny", "normalisation": "imagenet"}, "normalisation imagenet instead of default"),
        ({"name": "convmixer", "timm": {"patch": 8}}, "timm.patch 8 instead of None"),
        ({"name": "resnet50", "timm": {"depth": 0.5}}, "timm.depth 0.5 instead of 1.0"),
        ({"name": "resnet50", "backbone": {"stem": "cifar"}}, "backbone.stem cifar instead of imagenet"),
    ],
)
def test_published_weights_fit_the_published_size_alone(values, words):
    section = "timm" if values["name"] in FAMILIES else "backbone"
    with pytest.raises(ValidationError, match=words):
        ModelSettings(**{**values, section: values.get(section, {}) | {"weights": "imagenet"}})


@pytest.mark.parametrize(
    "variant", [v for variants in FAMILIES.values() for v, own in variants.items() if own.published]
)
def test_variants_that_are_called_published_are_in_timms_list(variant):
    family = next(name for name, variants in FAMILIES.items() if variant in variants)
    assert timm.models.get_pretrained_cfg(variant).hf_hub_id
    settings = ModelSettings(name=family, timm={"variant": variant, "weights": "imagenet"})
    assert settings.weights == "imagenet" and settings.weights_key == "timm.weights"


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "resnet101", "vgg11", "vgg16", "vgg16_bn"])
def test_torchvision_publishes_what_is_fetched_from_it(name):
    weights = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"]
    assert weights.url.startswith("https://download.pytorch.org/models/" + name + "-")


@pytest.mark.parametrize(("tag", "gelu"), [("openai", True), ("laion2b_s34b_b88k", False)])
def test_published_clip_weights_get_the_activation_they_were_trained_with(tmp_path, monkeypatch, tag, gelu):
    """open_clip alone only warns: ViT-B-16 is then computed with another activation than OpenAI's."""
    import open_clip

    asked = {}

    class Encoder(torch.nn.Module):
        def encode_text(self, tokens):
            return torch.eye(len(tokens), 8)

    def create_model(name, **options):
        asked.update(options, name=name)
        return Encoder()

    monkeypatch.setattr(label_embeddings, "clip_file", lambda config, key, what: tmp_path / config["hf_hub"])
    monkeypatch.setattr(open_clip, "create_model", create_model)
    monkeypatch.setattr(open_clip, "get_tokenizer", lambda name: lambda prompts: prompts)
    rows = label_embeddings.embed_labels(LabelSettings(source="clip", clip_checkpoint=tag), ["cat", "dog"], 8)
    assert torch.equal(rows, torch.eye(2, 8))
    assert (asked["name"], asked["force_quick_gelu"], asked["require_pretrained"]) == ("ViT-B-16", gelu, True)
    assert asked["pretrained"] == str(tmp_path / open_clip.get_pretrained_cfg("ViT-B-16", tag)["hf_hub"])
