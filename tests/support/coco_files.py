"""COCO JSON files made for a test."""

import json

from tests.support.voc_trees import encoded, make_image, put

CATEGORIES = [{"id": 90, "name": "rust"}, {"id": 3, "name": "crack "}, {"id": 17, "name": "oil"}]


def coco(images, annotations=(), categories=CATEGORIES, **more):
    """Return a COCO JSON. ``images``: id -> file name or entries; ``annotations``: (image id, category id) or
    entries.
    """
    listed = [
        {"id": key, "width": 40, "height": 30} | (value if isinstance(value, dict) else {"file_name": value})
        for key, value in (images.items() if isinstance(images, dict) else images)
    ]
    entries = [
        one if not isinstance(one, tuple) else {"id": 100 + number, "image_id": one[0], "category_id": one[1]}
        for number, one in enumerate(annotations)
    ]
    return {"info": {}, "images": listed, "annotations": entries, "categories": categories} | more


def dump(path, content, encoding="utf-8"):
    put(path, json.dumps(content, ensure_ascii=False).encode(encoding))


def write_images(root, *names):
    for number, name in enumerate(names):
        put(root / name, encoded(make_image(number)))
