"""Frozen label embeddings L [C, d]. Letters: C labels, w width of the source, d width of the network."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.errors import LabelError, UserError
from models.files import replacing_file
from models.settings.model import LabelSettings
from models.weights.loading import UNREADABLE, unread
from models.weights.published import clip_file

PROJECTION_SEED = 20250503  # of the fixed projection from w to d; changing it changes every model
HASH_WIDTH = 4096  # hash buckets of the n-grams
HASH_NGRAMS = (2, 4)  # characters per n-gram
STATE_PROMPTS = ("negative", "positive")  # absent, present (FedLGT's code exchanges them)
EPS = 1e-6  # embeddings whose cosine is within this of 1 count as equal


def embed_labels(settings: LabelSettings, classes: Sequence[str], dim: int) -> Tensor:
    """Return one unit row per class, a function of the settings and the names alone.

    Args:
        settings: Source and its options.
        classes: The C class names in the data set's order.
        dim: d, the token width of the network. A source of another width is projected by a fixed random matrix.

    Returns:
        L [C, d] float32, rows of length 1, without gradient.

    Raises:
        UserError: If the source is missing or damaged, lacks a label, or has rows that cannot be normalised.
    """
    if settings.source == "hash":
        rows = _hashed_ngrams(_words(settings, classes))
    elif settings.source == "clip":
        rows = _clip(settings, _words(settings, classes), classes)
    else:
        assert settings.file is not None, "LabelSettings checks that"
        rows = _from_file(settings.file, classes)
    rows = _unit(rows, settings, classes)
    _check_different(rows, settings, classes)
    if settings.center:
        rows = _unit(rows - rows.mean(0), settings, classes)
    if rows.shape[1] != dim:
        rows = _unit(rows @ _projection(rows.shape[1], dim), settings, classes)
    _check_different(rows, settings, classes)
    return rows.to(torch.float32).contiguous()


def embed_states(settings: LabelSettings, dim: int) -> Tensor:
    """Return the rows e(absent), e(present) of FedLGT's frozen states, from the same source as the labels.

    The bare words are embedded, without the labels' prompt and centring.

    Returns:
        [2, d] float32, unit rows.

    Raises:
        UserError: As ``embed_labels``; a file needs rows for the two words too.
    """
    plain = settings.model_copy(update={"prompt": "{label}", "prompt_names": {}, "center": False})
    try:
        return embed_labels(plain, STATE_PROMPTS, dim)
    except UserError as error:
        if settings.source != "file":
            raise
        raise UserError(
            "the label file lacks the two state words that the network needs",
            where=error.where,
            expected=f"rows named {' and '.join(STATE_PROMPTS)} (absent, present) in addition to the labels",
            found=f"{error.what} {error.found}",
            hint="add the embeddings of the two words to the file, or set model.labels.source to clip or hash",
        ) from error


def write_label_file(path: Path, classes: Sequence[str], embeddings: Tensor) -> None:
    """Write embeddings [C, w] with their label names as the file that source ``file`` reads."""
    from safetensors.torch import save_file

    assert embeddings.shape[0] == len(classes), "one row for each class"
    with replacing_file(path) as beside:
        save_file({"embeddings": embeddings.contiguous()}, beside, metadata={"labels": json.dumps(list(classes))})


def _unit(rows: Tensor, settings: LabelSettings, classes: Sequence[str]) -> Tensor:
    """Divide rows [C, w] by their lengths, in float64."""
    rows = rows.to(torch.float64)
    lengths = rows.norm(dim=1, keepdim=True)
    bad = [name for name, length in zip(classes, lengths.flatten().tolist(), strict=True) if not 1e-9 < length < 1e300]
    if bad:
        raise LabelError(
            "some label embeddings are zero or not finite",
            bad[:2],
            where=f"model.labels (source {settings.source})",
            expected="finite rows that differ from zero" + (" and from their mean" if settings.center else ""),
            found=", ".join(bad[:5]),
            hint="set model.labels.center to false" if settings.center else None,
        )
    return rows / lengths


def _check_different(rows: Tensor, settings: LabelSettings, classes: Sequence[str]) -> None:
    """Refuse equal rows among unit rows [C, w]: a network could never tell the two labels apart."""
    alike = (rows @ rows.T).triu(diagonal=1) > 1.0 - EPS
    found = [(classes[i], classes[k]) for i, k in alike.nonzero()[:3].tolist()]
    pairs = [" and ".join(pair) for pair in found]
    if not pairs:
        return
    more = int(alike.sum()) - len(pairs)
    file_hint = f"write a different row for each into {settings.file}" if settings.source == "file" else None
    raise LabelError(
        "two labels have equal embeddings, so a network cannot tell them apart",
        found[0],
        where=f"model.labels (source {settings.source})",
        expected="a different embedding for each label",
        found=", ".join(pairs) + (f" and {more} more pairs" if more else ""),
        hint=file_hint or "set different words for each in model.labels.prompt_names",
    )


def _projection(width: int, dim: int) -> Tensor:
    """Return the fixed random matrix [w, d] float64; it keeps angles up to about 1 / sqrt(d)."""
    generator = torch.Generator().manual_seed(PROJECTION_SEED)
    return torch.randn(width, dim, generator=generator, dtype=torch.float64) / dim**0.5


def _words(settings: LabelSettings, classes: Sequence[str]) -> list[str]:
    """Return the words of each class: its entry in ``prompt_names``, else its name with _ and - as spaces."""
    unknown = sorted(set(settings.prompt_names) - set(classes))
    if unknown:
        raise UserError(
            "model.labels.prompt_names has labels that the data set does not have",
            where="model.labels.prompt_names",
            expected=f"labels among {', '.join(classes)}",
            found=", ".join(unknown[:5]),
        )
    words = [
        " ".join(settings.prompt_names.get(name, name.replace("_", " ").replace("-", " ")).split()) for name in classes
    ]
    first: dict[str, str] = {}
    for name, text in zip(classes, words, strict=True):
        twin = first.setdefault(text.casefold(), name)
        if twin != name or not text:
            raise LabelError(
                "a label has no words" if not text else "two labels have the same words, so the same embedding",
                [name] if not text else [twin, name],
                found=repr(text),
                hint="set different words in model.labels.prompt_names, or merge or rename the labels in "
                "ingest.label_aliases",
            )
    return words


def _hashed_ngrams(words: Sequence[str]) -> Tensor:
    """Return counts of hashed features [C, HASH_WIDTH]: labels that share words or stems are close, none are equal.

    The features are the character n-grams inside words, each word with its position, and the whole text: with n-grams
    alone ``red`` and ``red red`` would have one direction, and ``door open`` and ``open door`` one row.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    ngrams = HashingVectorizer(analyzer="char_wb", ngram_range=HASH_NGRAMS).build_analyzer()

    def features(text: str) -> list[str]:
        text = text.lower()
        words_at = [f"{position}|{word}" for position, word in enumerate(text.split())]
        return [*ngrams(text), *words_at, f"={text}"]

    # Signed buckets could cancel two n-grams in one bucket to a row of zeros.
    hashing = HashingVectorizer(analyzer=features, n_features=HASH_WIDTH, norm="l2", alternate_sign=False)
    return torch.from_numpy(hashing.transform(list(words)).toarray())


def _from_file(path: Path, classes: Sequence[str]) -> Tensor:
    """Return rows of the file's `embeddings` [C', w] in the order of ``classes``; other labels are ignored."""
    from safetensors import SafetensorError, safe_open

    expected = "a .safetensors with a tensor `embeddings` [C, w] and the metadata `labels`, a JSON list of C names"
    if not path.is_file():
        raise UserError("the label file does not exist", where=path, expected=expected, found="no such file")
    try:
        with safe_open(path, framework="pt") as file:
            labels = json.loads((file.metadata() or {})["labels"])
            embeddings: Tensor = file.get_tensor("embeddings")
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise UserError(
            "the label file cannot be read",
            where=path,
            expected=expected,
            found=f"{type(error).__name__}: {error}",
            hint="models.label_aware.label_embeddings.write_label_file writes such a file.",
        ) from error
    is_names = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    is_table = embeddings.ndim == 2 and not embeddings.is_complex()
    is_table = is_table and is_names and embeddings.shape[0] == len(labels)
    if not is_table or len(set(labels)) != len(labels):
        found = f"embeddings {embeddings.dtype} {tuple(embeddings.shape)}, labels {str(labels)[:80]}"
        raise UserError("the label file is inconsistent", where=path, expected=expected, found=found)
    missing = [name for name in classes if name not in labels]
    if missing:
        raise UserError(
            "the label file lacks labels of the data set",
            where=path,
            expected=f"all of {', '.join(classes)}",
            found=f"without {', '.join(missing)}",
        )
    return embeddings[[labels.index(name) for name in classes]]


def _clip(settings: LabelSettings, words: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Return CLIP's text embeddings [C, w] of the prompts; the model is freed on return."""
    model, tokenizer = _load_clip(settings)
    prompts = [settings.prompt.replace("{label}", text) for text in words]
    for name, prompt in zip(classes, prompts, strict=True):
        # open_clip truncates silently, and two long prompts could become equal.
        if hasattr(tokenizer, "encode") and len(tokenizer.encode(prompt)) + 2 > tokenizer.context_length:
            raise LabelError(
                "a label's prompt is longer than CLIP's context",
                [name],
                expected=f"at most {tokenizer.context_length - 2} tokens",
                found=f"{len(tokenizer.encode(prompt))} tokens: {prompt[:200]}",
                hint="shorten it in model.labels.prompt_names",
            )
    with torch.no_grad():
        rows: Tensor = model.eval().encode_text(tokenizer(prompts)).float()
    return rows


def _load_clip(settings: LabelSettings) -> tuple[Any, Any]:
    """Return (CLIP model, its tokenizer) from a folder, a file or a published tag; never with random weights."""
    import open_clip
    from safetensors import SafetensorError

    name, checkpoint = settings.clip_model, settings.clip_checkpoint
    if checkpoint is None:
        raise _no_clip(settings, "no checkpoint is set")
    gelu = False
    if checkpoint.startswith("local-dir:"):
        name, pretrained = checkpoint, None
    elif Path(checkpoint).is_file():
        pretrained = checkpoint
    elif checkpoint in open_clip.list_pretrained_tags_by_model(name):
        config = open_clip.get_pretrained_cfg(name, checkpoint)
        try:
            pretrained = str(clip_file(config, "model.labels.clip_checkpoint", f"{name}, {checkpoint}"))
        except UserError as error:
            raise _no_clip(settings, error.found, f"{error.hint}. Or") from error
        gelu = bool(config.get("quick_gelu"))  # the activation that these weights were trained with
    else:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none, the model is unknown"
        raise _no_clip(settings, f"neither a file nor a tag of {name} (tags: {tags})")
    try:
        model = open_clip.create_model(name, pretrained=pretrained, require_pretrained=True, force_quick_gelu=gelu)
        return model, open_clip.get_tokenizer(name)
    except (*UNREADABLE, SafetensorError) as error:
        raise _no_clip(settings, unread(error)) from error


def _no_clip(settings: LabelSettings, found: object, way: str = "set the tag openai, or a file. Or") -> UserError:
    return UserError(
        "CLIP's weights for the label embeddings are not available",
        where=f"model.labels.clip_checkpoint = {settings.clip_checkpoint}",
        expected=f"a weight file of {settings.clip_model}, local-dir:FOLDER with open_clip_config.json and weights, "
        "or one of its published tags (openai), with internet or in the hub's cache",
        found=found,
        hint=f"{way} set model.labels.source to hash: embeddings from the spelling of the names, which need no "
        "download, but related labels with different names are not close",
    )
