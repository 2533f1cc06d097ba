"""COCO JSON: values of other types, removed keys, huge and invalid numbers, nesting, broken text, encodings."""

import json
from collections.abc import Iterator

from .damage import damaged, damaged_json, encoded
from .frame import Case, case_rng
from .trees import make_image, read_all, tree

SHORT = 60
_SOUND = {
    "info": {"year": 2020},
    "licenses": [],
    "images": [
        {"id": 1, "file_name": "a.png", "width": 40, "height": 30, "station": "north"},
        {"id": 2, "file_name": "sub/b.png", "width": 40, "height": 30},
        {"id": "3", "file_name": "C:\\x\\Ölspur.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": 0, "ignore": 0},
        {"id": 2, "image_id": 1, "category_id": 7, "bbox": [1.5, 2.5, 3.0, 4.0], "segmentation": [[1, 2, 3, 4]]},
        {"id": 3, "image_id": 2, "category_id": 7, "deleted": False},
    ],
    "categories": [
        {"id": 0, "name": "all", "supercategory": "none"},
        {"id": 1, "name": "crack", "supercategory": "all"},
        {"id": 7, "name": "oil", "supercategory": "all"},
    ],
}
_SECOND_JSON = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": _SOUND["categories"]}


def cases(seed: int) -> Iterator[Case]:
    """Yield damaged JSON files without end."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        done: list[str] = []
        if rng.random() < 0.7:
            text = json.dumps(damaged_json(_SOUND, rng), ensure_ascii=rng.random() < 0.5)
            data, name = encoded(text, rng, done), "values"
        elif rng.random() < 0.05:
            deep = rng.choice(('{"images":[', "[", '{"a":')) * rng.choice((900, 100_000))
            data, name = f'{{"images": [], "categories": [], "annotations": {deep}'.encode(), "nested"
        else:
            data, name = damaged(json.dumps(_SOUND, ensure_ascii=False, indent=rng.choice((None, 1))), rng)
        yield Case(", ".join([name, *done]), data)
        number += 1


def try_one(case: Case) -> str:
    """Read it next to its images, sometimes together with another JSON of one of them."""
    rng = case_rng(len(case.data), case.name)
    files = {"a.png": make_image(1), "sub/b.png": make_image(2), "Ölspur.png": make_image(3), "x.json": case.data}
    two = rng.random() < 0.2
    root = tree(
        "coco two" if two else "coco", files | ({"train.json": json.dumps(_SECOND_JSON).encode()} if two else {})
    )
    own = {
        "ignored": rng.choice(("ask", "count", "leave_out")),
        "dangling": rng.choice(("distrust", "distrust", "pass_over")),
        "annotations": rng.choice((None, ["x.json"])),
    }
    return read_all("coco", root, own, "x.json")
