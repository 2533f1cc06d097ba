"""Label embeddings from letters, from a file and from a tiny CLIP written by the test."""

import importlib
import json

import pytest
import torch
from safetensors.torch import save_file

from models.errors import UserError
from models.label_aware import label_embeddings
from models.label_aware.label_embeddings import embed_labels, embed_states, write_label_file
from models.settings.model import LabelSettings, ModelSettings
from tasks.server.initial_model import frozen_embeddings

CLASSES = ["switch-left", "switch-right", "bird nest", "smoking"]


def angles(rows):
    return rows @ rows.T


@pytest.mark.parametrize("dim", [64, 512])
def test_hash_embeddings_are_unit_reproducible_and_closer_for_similar_names(dim):
    rows = embed_labels(LabelSettings(), CLASSES, dim)
    assert rows.shape == (4, dim) and rows.dtype == torch.float32 and not rows.requires_grad
    assert torch.allclose(rows.norm(dim=1), torch.ones(4))
    torch.manual_seed(5)
    assert torch.equal(embed_labels(LabelSettings(), CLASSES, dim), rows)
    cosines = angles(rows)
    assert cosines[0, 1] > 0.4 > cosines[0, 2:].max()


def test_a_row_depends_on_its_own_label_only():
    rows = embed_labels(LabelSettings(), CLASSES, 64)
    assert torch.allclose(embed_labels(LabelSettings(), CLASSES[::-1], 64), rows.flip(0))


def test_prompt_names_replace_codes():
    named = LabelSettings(prompt_names={"jyz_pl": "cracked insulator"})
    coded = embed_labels(named, ["jyz_pl", "smoking"], 64)
    assert torch.allclose(coded[0], embed_labels(LabelSettings(), ["cracked insulator"], 64)[0])


def test_centred_embeddings_have_mean_zero():
    plain = LabelSettings(source="hash", center=False)
    centred = embed_labels(plain.model_copy(update={"center": True}), CLASSES, label_embeddings.HASH_WIDTH)
    rows = embed_labels(plain, CLASSES, label_embeddings.HASH_WIDTH)
    expected = torch.nn.functional.normalize(rows - rows.mean(0))
    assert torch.allclose(centred, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "options", "words"),
    [
        (["red off", "red-off"], {}, "red off and red-off"),
        (["Cat", "cat"], {}, "Cat and cat"),
        (["cat", "  "], {}, "no words"),
        (["cat", "dog"], {"prompt_names": {"dgo": "a dog"}}, "dgo"),
        (["cat"], {"center": True}, "center to false"),  # one label minus its mean is nothing
    ],
)
def test_names_without_a_distinct_embedding_are_refused(classes, options, words):
    with pytest.raises(UserError, match=words):
        embed_labels(LabelSettings(**options), classes, 64)


def test_file_rows_follow_the_names_not_the_order(tmp_path):
    rows = torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]])
    write_label_file(tmp_path / "l.safetensors", ["c", "a", "other"], rows)
    settings = LabelSettings(source="file", file=tmp_path / "l.safetensors")
    assert torch.allclose(embed_labels(settings, ["a", "c"], 2), torch.tensor([[0.0, 1.0], [0.6, 0.8]]))


def test_projection_to_another_width_roughly_keeps_angles(tmp_path):
    rows = torch.nn.functional.normalize(torch.randn(6, 300, generator=torch.Generator().manual_seed(0)))
    write_label_file(tmp_path / "l.safetensors", list("abcdef"), rows)
    settings = LabelSettings(source="file", file=tmp_path / "l.safetensors")
    projected = embed_labels(settings, list("abcdef"), 2048)
    assert torch.allclose(projected.norm(dim=1), torch.ones(6))
    assert torch.allclose(angles(projected), angles(rows), atol=5 / 2048**0.5)


def write_bad(path, case):
    rows, names = torch.eye(2), json.dumps(["a", "b"])
    if case == "text":
        path.write_text("not safetensors")
    elif case == "no names":
        save_file({"embeddings": rows}, path)
    elif case == "no tensor":
        save_file({"vectors": rows}, path, metadata={"labels": names})
    elif case == "counts":
        save_file({"embeddings": torch.eye(3)}, path, metadata={"labels": names})
    elif case == "twice":
        save_file({"embeddings": rows}, path, metadata={"labels": json.dumps(["a", "a"])})
    elif case == "lacks":
        write_label_file(path, ["a", "c"], rows)
    elif case == "zero row":
        write_label_file(path, ["a", "b"], torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    elif case == "nan":
        write_label_file(path, ["a", "b"], torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]))
    elif case == "equal":
        write_label_file(path, ["a", "b"], torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
    elif case == "complex":
        write_label_file(path, ["a", "b"], rows + 0j)
    elif case == "deep":
        save_file({"embeddings": rows}, path, metadata={"labels": "[" * 100_000})


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("absent", "does not exist"),
        ("text", "cannot be read"),
        ("no names", "labels"),
        ("no tensor", "cannot be read"),
        ("counts", "inconsistent"),
        ("twice", "inconsistent"),
        ("lacks", "without b"),
        ("zero row", "zero or not finite"),
        ("nan", "zero or not finite"),
        ("equal", "cannot tell them apart"),
        ("complex", "inconsistent"),
        ("deep", "cannot be read"),
    ],
)
def test_bad_label_files_are_refused(tmp_path, case, words):
    path = tmp_path / "l.safetensors"
    write_bad(path, case)
    with pytest.raises(UserError, match=words):
        embed_labels(LabelSettings(source="file", file=path), ["a", "b"], 2)


@pytest.fixture(scope="module")
def tiny_clip(tmp_path_factory):
    """A folder with a CLIP of random weights, text width 24."""
    import open_clip

    vision = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
    text = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": text}
    model = open_clip.CLIP(**config).eval()
    folder = tmp_path_factory.mktemp("clip")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder, model


def test_clip_embeddings_are_the_text_encoders_of_the_prompts(tiny_clip):
    import open_clip

    folder, model = tiny_clip
    settings = LabelSettings(source="clip", clip_checkpoint=f"local-dir:{folder}")
    rows = embed_labels(settings, ["bird_nest", "smoking"], 24)
    texts = open_clip.tokenize(["The photo contains bird nest.", "The photo contains smoking."], 16)
    with torch.no_grad():
        expected = torch.nn.functional.normalize(model.encode_text(texts))
    assert torch.allclose(rows, expected, atol=1e-5)
    assert embed_labels(settings, ["bird_nest", "smoking"], 64).shape == (2, 64)


def test_labels_with_equal_clip_embeddings_are_refused_by_name(tiny_clip):
    settings = LabelSettings(source="clip", clip_checkpoint=f"local-dir:{tiny_clip[0]}")
    alike = ["rust", "dirt & dust", "dirt &amp; dust"]  # its tokenizer unescapes HTML
    with pytest.raises(UserError, match=r"found: dirt & dust and dirt &amp; dust\n.*prompt_names"):
        embed_labels(settings, alike, 24)


def test_prompts_longer_than_clips_context_are_refused(tiny_clip):
    settings = LabelSettings(source="clip", clip_checkpoint=f"local-dir:{tiny_clip[0]}")
    with pytest.raises(UserError, match="longer than CLIP's context"):
        embed_labels(settings, ["cat", "one two three four five six seven eight nine ten eleven twelve"], 24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "no state dict"),
        ({1: torch.ones(1)}, "no state dict"),
        ({}, "no state dict"),
        ({"a": LabelSettings}, "not executed"),
    ],
)
def test_checkpoints_of_other_models_are_refused(tmp_path, content, words):
    torch.save(content, tmp_path / "clip.pt")
    settings = LabelSettings(source="clip", clip_model="RN50", clip_checkpoint=str(tmp_path / "clip.pt"))
    with pytest.raises(UserError, match=f"not available[\\s\\S]*{words}") as caught:
        embed_labels(settings, ["cat", "dog"], 24)
    assert "weights_only" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["none", "unknown tag", "no folder", "no weights", "damaged", "offline hub"])
def test_a_missing_clip_checkpoint_is_reported_with_alternatives(tiny_clip, tmp_path, monkeypatch, case):
    if case == "no weights":  # open_clip alone would go on with random ones
        (tmp_path / "open_clip_config.json").write_text((tiny_clip[0] / "open_clip_config.json").read_text())
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing")
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:9")  # nobody listens: refused at once
    for name in ("HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    checkpoint = {
        "none": None,
        "unknown tag": "openia",
        "no folder": f"local-dir:{tmp_path}/nowhere",
        "no weights": f"local-dir:{tmp_path}",
        "damaged": str(tmp_path / "damaged.safetensors"),
        "offline hub": "openai",
    }[case]
    with pytest.raises(UserError, match=r"not available[\s\S]*hash"):
        embed_labels(LabelSettings(source="clip", clip_checkpoint=checkpoint), ["cat", "dog"], 24)


def test_state_embeddings_ignore_the_settings_of_label_prompts():
    plain = embed_states(LabelSettings(), 64)
    assert torch.equal(plain, embed_labels(LabelSettings(), ["negative", "positive"], 64))
    assert torch.equal(embed_states(LabelSettings(center=True, prompt_names={"cat": "a cat"}), 64), plain)


def test_clip_embeds_the_bare_state_words(tiny_clip):
    import open_clip

    settings = LabelSettings(source="clip", clip_checkpoint=f"local-dir:{tiny_clip[0]}")
    with torch.no_grad():
        expected = tiny_clip[1].encode_text(open_clip.tokenize(["negative", "positive"], 16))
    assert torch.allclose(embed_states(settings, 24), torch.nn.functional.normalize(expected), atol=1e-5)


def test_a_label_file_must_contain_the_state_words(tmp_path):
    path = tmp_path / "l.safetensors"
    settings = ModelSettings(name="fedlgt", labels={"source": "file", "file": path}, backbone={"width": 0.125})
    write_label_file(path, ["a", "b"], torch.eye(2))
    with pytest.raises(UserError, match=r"two state words[\s\S]*negative and positive[\s\S]*without negative"):
        frozen_embeddings(settings, ["a", "b"])
    write_label_file(path, ["positive", "a", "b", "negative"], torch.eye(4))
    tables = frozen_embeddings(settings, ["a", "b"])
    assert tables["label_table"].shape == tables["state_words"].shape == (2, 64)
    assert torch.equal(tables["state_words"], embed_labels(settings.labels, ["negative", "positive"], 64))


@pytest.mark.parametrize(
    ("network", "tables"),
    [
        ({"name": "fmman"}, {"label_table"}),
        ({"name": "fmman", "fmman": {"state_combine": "add_embed"}}, {"label_table"}),
        (
            {"name": "fmman", "fmman": {"state_combine": "add_embed", "state_embeddings": "frozen"}},
            {"label_table", "state_words"},
        ),
        ({"name": "fedlgt"}, {"label_table", "state_words"}),
        ({"name": "ctran"}, set()),
        ({"name": "resnet18"}, set()),
    ],
)
def test_networks_get_the_frozen_embeddings_that_they_need(network, tables):
    assert set(frozen_embeddings(ModelSettings(**network), CLASSES)) == tables


@pytest.fixture
def known_to_open_clip(tiny_clip, monkeypatch, tmp_path):
    """The tiny CLIP as a model that open_clip knows by name, so that one weight file is enough."""
    import open_clip

    factory = importlib.import_module("open_clip.factory")
    monkeypatch.setattr(factory, "_MODEL_CONFIG_PATHS", list(factory._MODEL_CONFIG_PATHS))
    monkeypatch.setattr(factory, "_MODEL_CONFIGS", dict(factory._MODEL_CONFIGS))
    config = json.loads((tiny_clip[0] / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "tiny-clip.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    return "tiny-clip"


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["folder", "safetensors", "pt"])
@pytest.mark.parametrize("name", ["fmman", "fedlgt"])
def test_from_a_clip_checkpoint_to_a_trained_and_evaluated_model(
    tiny_clip, known_to_open_clip, make_run, tiny_data, tmp_path, name, saved
):
    from tasks.client.train import train_client
    from tasks.core.round_state import RoundState
    from tasks.evaluation.evaluate import evaluate_model
    from tests.support.jobs import train_job

    folder, clip = tiny_clip
    labels = {"source": "clip", "clip_checkpoint": f"local-dir:{folder}", "prompt": "{label}"}
    if saved != "folder":
        labels |= {"clip_checkpoint": str(tmp_path / f"weights.{saved}"), "clip_model": known_to_open_clip}
        save = save_file if saved == "safetensors" else torch.save
        save(clip.state_dict(), tmp_path / f"weights.{saved}")
    network = {"name": name, "backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2}, "labels": labels}
    context, start = make_run(objective=name, network=network)
    table = context.open_store().get_state(context.tables)["label_table"]
    by_folder = LabelSettings(source="clip", clip_checkpoint=f"local-dir:{folder}", prompt="{label}")
    assert torch.equal(table, embed_labels(by_folder, tiny_data.classes, 64))
    update = train_client(context, train_job(tiny_data.ids[0], 1, 1, start, [start]))
    assert update.model.digest != start.digest
    metrics = evaluate_model(context, RoundState.starting_from(update.model))["metrics"]
    assert 0 < metrics["macro_ap"] <= 1 and metrics["loss"] > 0
