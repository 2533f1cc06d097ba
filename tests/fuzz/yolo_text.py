"""YOLO text: label lines, names files, the YAML and split lists, each damaged in turn."""

from collections.abc import Iterator

from .damage import damaged
from .frame import Case, case_rng
from .trees import make_image, read_all, tree

SHORT = 60
_SECOND_JSON = {"images/a.png": make_image(1), "images/b.png": make_image(2), "labels/b.txt": b"1 .5 .5 .2 .2\n"}
#: file -> its sound text
_SOUND = {
    "labels/a.txt": "0 0.5 0.5 0.2 0.2\n\n2 0.1 0.1 0.1 0.1 0.93\n1 .1 .1 .5 .1 .5 .5\n",
    "data.yaml": "path: ../datasets/x\ntrain: images\nval: [images/val, val.txt]\ntest:\nnc: 3\n"
    "names:\n  0: crack\n  1: 绝缘子\n  2: 'oil spot'\n",
    "classes.txt": "crack\r\n绝缘子\r\noil spot\r\n",
    "train.txt": "images/a.png\n./images\\b.png\nC:\\x\\gone.png\n",
}


def cases(seed: int) -> Iterator[Case]:
    """Yield damaged files without end; the name begins with which file it is."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        name = rng.choice(("labels/a.txt", "labels/a.txt", *_SOUND))
        data, done = damaged(_SOUND[name], rng)
        yield Case(f"{name}: {done}", data)
        number += 1


def try_one(case: Case) -> str:
    """Read it together with the other, sound files."""
    damaged_file = case.name.partition(":")[0]
    files = {"labels/a.txt": _SOUND["labels/a.txt"].encode(), "data.yaml": _SOUND["data.yaml"].encode()}
    if damaged_file == "classes.txt":
        del files["data.yaml"]
    root = tree(f"yolo {damaged_file.replace('/', ' ')}", _SECOND_JSON | files | {damaged_file: case.data})
    return f"{damaged_file.rpartition('/')[2]}: {read_all('yolo', root, {}, damaged_file)}"
