"""VOC annotations: elements renamed, moved, removed and nested, unusual texts, entities, broken XML, encodings."""

import random
from collections.abc import Iterator
from copy import deepcopy
from xml.etree import ElementTree

from .damage import UNUSUAL_WORDS, damaged, encoded
from .frame import Case, case_rng
from .trees import make_image, read_all, tree

SHORT = 60
_SOUND = """<?xml version="1.0" encoding="utf-8"?>
<annotation verified="yes"><folder>x</folder><filename>a.png</filename><path>C:/x/a.png</path>
<source><database>Unknown</database><annotation>x</annotation></source><owner><name>wu</name></owner>
<size><width>40</width><height>30</height><depth>3</depth></size><segmented>0</segmented>
<object><name>crack</name><pose>Left</pose><truncated>0</truncated><difficult>0</difficult><deleted>0</deleted>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30.5</xmax><ymax>20</ymax></bndbox>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>
<object><name>绝缘子</name><ignore>0</ignore><polygon><pt><x>1</x><y>2</y></pt></polygon></object></annotation>"""
_TAGS = ("object", "name", "annotation", "annotations", "image", "part", "label", "{http://x}object", "Object", "x")
_HEADS = (
    '<?xml version="1.0" encoding="{0}"?>',
    "<!DOCTYPE a [<!ENTITY x 'y'>]>",
    '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;&a;">]>',
    '<!DOCTYPE a SYSTEM "file:///etc/passwd">',
    "<?x y?>",
    "<!-- x -->",
    "",
)
_DECLARED = ("utf-8", "UTF-16", "gb2312", "utf-7", "latin-1", "cp1252", "idna", "punycode", "rot13", "zlib", "hex", "x")


def cases(seed: int) -> Iterator[Case]:
    """Yield damaged annotations without end."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        done: list[str] = []
        if rng.random() < 0.5:
            root = ElementTree.fromstring(_SOUND.encode())  # noqa: S314
            for _ in range(rng.choice((1, 2, 4))):
                done.append(_change(root, rng))
            body = ElementTree.tostring(root, "unicode")
            text = rng.choice(_HEADS).format(rng.choice(_DECLARED)) + body
            data = encoded(text, rng, done)
        elif rng.random() < 0.05:
            deep = rng.choice(("<object>", "<a>", "<object><name>a</name>")) * rng.choice((900, 50_000))
            data, done = f"<annotation>{deep}".encode(), ["nested"]
            if rng.random() < 0.5:
                tags = "<part>" * 20_000 + "<object><name>a</name></object>" + "</part>" * 20_000
                data = f"<annotation>{tags}</annotation>".encode()
        else:
            data, name = damaged(_SOUND, rng)
            done = [name]
        yield Case(", ".join(done), data)
        number += 1


def _change(root: ElementTree.Element, rng: random.Random) -> str:
    elements = [element for element in root.iter() if len(element)]
    parent = rng.choice(elements)
    child = rng.choice(list(parent))
    action = rng.choice(("renamed", "removed", "moved", "repeated", "text", "attribute", "wrapped"))
    if action == "renamed":
        child.tag = rng.choice(_TAGS)
    elif action == "removed" and len(list(root.iter())) > 5:
        parent.remove(child)
    elif action == "moved":
        parent.remove(child)
        others = list(root.iter())
        rng.choice(others).append(child)
    elif action == "repeated":
        parent.append(deepcopy(child))  # not itself: moved into itself it would have no end
    elif action == "text":
        child.text = "".join(letter for letter in rng.choice(UNUSUAL_WORDS) if letter.isprintable() or letter in "\t\n")
    elif action == "attribute":
        child.set("name", rng.choice(("x", "", "绝")))
    else:
        parent.remove(child)
        wrapper = ElementTree.SubElement(parent, rng.choice(_TAGS))
        wrapper.append(child)
    return action


def try_one(case: Case) -> str:
    """Read it next to its image and a sound pair."""
    rng = case_rng(len(case.data), case.name)
    own = {
        "ignored": rng.choice(("ask", "count", "leave_out")),
        "difficult": rng.choice(("count", "ignore")),
        "several_annotations": rng.choice(("refuse", "join")),
    }
    name = "c" if rng.random() < 0.1 else "a"  # now and then without its image
    files = {"a.png": make_image(1), "b.png": make_image(2), "b.xml": _SOUND.encode(), f"{name}.xml": case.data}
    return read_all("voc", tree(f"voc {name}", files), own, f"{name}.xml")
