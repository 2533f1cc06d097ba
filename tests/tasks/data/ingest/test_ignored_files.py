"""Files that are not used: litter, unsupported formats, and what the user excludes."""

import json

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from models.errors import UserError
from tasks.data.decoding.parallel import Decoding
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.ingest import ingest
from tasks.data.ingest.reading import collect, open_source
from tasks.data.ingest.settings import IngestSettings
from tasks.data.text.patterns import matcher
from tests.support.image_trees import HEIC
from tests.support.voc_trees import encoded, make_image, put, voc_xml


def rows_of(root, source="folder", **settings):
    chosen = IngestSettings.model_validate({"source": source, "path": root, **settings})
    collector = collect(open_source(chosen), chosen, 0, Decoding(32, chosen.limits), workers=1)
    collector.select_images()
    return {row["path"]: row for row in collector.rows}


def status(rows):
    return {path: (row["status"], row["reason"]) for path, row in rows.items()}


def classes(root):
    for number, name in enumerate(("crack", "oil") * 3):
        put(root / name / f"{number}.jpg", encoded(make_image(number), "JPEG"))
    return root


LITTER = [
    "crack/@eaDir/0.jpg/SYNOPHOTO_THUMB_M.jpg", "#recycle/crack/9.jpg", "@Recycle/9.jpg", "@Recently-Snapshot/d/9.jpg",
    "$RECYCLE.BIN/S-1-5/$R1.jpg", "System Volume Information/x.jpg", "__MACOSX/crack/x.jpg", "lost+found/#12.jpg",
    "~snapshot/daily/crack/0.jpg", "Photos Library.photoslibrary/resources/0.jpg", "Catalog Previews.lrdata/1/a.jpg",
    "crack/CaptureOne/Cache/Thumbnails/0.jpg", "crack/[Originals]/0.jpg", "oil/~$0.jpg", "oil/1.jpg.part",
    "oil/1.jpg.crdownload", "oil/1.tmp", "oil/1.jpg~", "oil/1.jpg@SynoEAStream", "found.000/file0001.jpg",
    "oil/SYNOFILE_THUMB_M.jpg", "__pycache__/a.jpg", "mlruns/0/plot.png", "LOST.DIR/1.jpg",
]  # fmt: skip
HIDDEN = [
    ".thumbnails/0.jpg", ".@__thumb/s100.jpg", ".Trash-1000/files/9.jpg", ".AppleDouble/0.jpg", ".Spotlight-V100/s.jpg",
    ".fseventsd/x.jpg", ".DocumentRevisions-V100/x.jpg", ".TemporaryItems/x.jpg", ".snapshot/d/0.jpg", ".zfs/s/0.jpg",
    ".ipynb_checkpoints/0-checkpoint.jpg", ".git/x.jpg", ".dvc/cache/x.jpg", ".picasaoriginals/0.jpg", ".dtrash/0.jpg",
    ".stversions/0.jpg", ".sync/Archive/0.jpg", ".dropbox.cache/0.jpg", "crack/._0.jpg", "crack/.DS_Store",
    "crack/Thumbs.db", "oil/desktop.ini",
]  # fmt: skip


def test_files_left_by_nas_desktops_and_tools_are_litter(tmp_path):
    root = classes(tmp_path)
    for number, name in enumerate([*LITTER, *HIDDEN], 100):
        put(root / name, encoded(make_image(number), "JPEG"))
    rows = status(rows_of(root))
    assert {path: row for path, row in rows.items() if row[0] == "ok"}.keys() == {
        f"{name}/{number}.jpg" for number, name in enumerate(("crack", "oil") * 3)
    }
    assert {rows[name] for name in LITTER} == {("ignored", "litter")}
    assert {rows[name] for name in HIDDEN} == {("ignored", "hidden")}
    settings = IngestSettings.model_validate({"source": "folder", "path": root})
    assert open_source(settings).classes == ["crack", "oil"]
    assert guess_format(root)[1].endswith("classes: crack, oil")


@pytest.mark.parametrize("source", ["voc", "yolo", "coco", "table", "images"])
def test_litter_is_not_recognised_as_any_format(tmp_path, source):
    files = {"images/1.jpg": encoded(make_image(1), "JPEG"), "images/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg": b"x"}
    files |= {"@eaDir/x.xml/a.xml": b"x", "#recycle/1.jpg": encoded(make_image(2)), "#recycle/1.txt": b"0 1 1 1 1"}
    files |= {
        "voc": {"xml/1.xml": voc_xml(["crack"])},
        "yolo": {"labels/1.txt": b"0 0.5 0.5 0.1 0.1\n", "classes.txt": b"crack\n"},
        "coco": {
            "a.json": json.dumps(
                {"images": [{"id": 1, "file_name": "1.jpg"}], "categories": [{"id": 1, "name": "crack"}],
                 "annotations": [{"id": 1, "image_id": 1, "category_id": 1}]}
            ).encode()
        },
        "table": {"t.csv": b"image,label\n1.jpg,crack\n"},
        "images": {},
    }[source]  # fmt: skip
    for name, data in files.items():
        put(tmp_path / name, data)
    rows = rows_of(tmp_path, source)
    assert {row["reason"] for path, row in rows.items() if "@eaDir" in path or "#recycle" in path} == {"litter"}
    assert rows["images/1.jpg"]["status"] == "ok"
    assert not any(row["status"] == "quarantined" for row in rows.values())


def test_names_that_only_look_like_litter_are_data(tmp_path):
    names = [
        "recycle/1.jpg",
        "cache/1.jpg",
        "snapshot/1.jpg",
        "eaDir/1.jpg",
        "thumbs/1.jpg",
        "temp/1.jpg",
        "oil/~1.jpg",
    ]
    for number, name in enumerate(names):
        put(tmp_path / name, encoded(make_image(number)))
    assert {row["status"] for row in rows_of(tmp_path).values()} == {"ok"}


def test_unsupported_photographs_are_reported_and_count_as_bad(tmp_path):
    root = classes(tmp_path / "src")
    for number in range(4):
        put(root / f"crack/IMG_{number}.HEIC", HEIC)
    put(root / "oil/scan", encoded(make_image(50), "TIFF"))  # no suffix: the content decides
    put(root / "oil/x.dat", HEIC)
    put(root / "oil/notes.dat", b"nothing that is an image")
    put(root / "oil/notes.md", b"x")
    rows = rows_of(root)
    bad = [path for path, row in rows.items() if row["status"] == "quarantined"]
    assert sorted(bad) == [*(f"crack/IMG_{number}.HEIC" for number in range(4)), "oil/x.dat"]
    assert {rows[path]["reason"] for path in bad} == {"not_an_image"}
    assert rows["oil/scan"]["status"] == "ok"
    assert (rows["oil/notes.dat"]["reason"], rows["oil/notes.md"]["reason"]) == ("other", "other")
    with pytest.raises(UserError, match=r"5 of 12 inputs(.|\n)*IMG_0\.HEIC(.|\n)*4 \.heic(.|\n)*pillow-heif"):
        ingest(IngestSettings.model_validate({"source": "folder", "path": root}), tmp_path / "out", seed=0)


def test_the_same_photograph_in_an_unsupported_format_is_a_copy(tmp_path):
    root = classes(tmp_path)
    put(root / "crack/0.NEF", encoded(make_image(90), "TIFF"))
    put(root / "crack/2.heic", HEIC)
    rows = rows_of(root)
    assert (rows["crack/0.NEF"]["reason"], rows["crack/2.heic"]["reason"]) == ("copy", "copy")
    assert rows["crack/0.jpg"]["status"] == "ok"
    voc = tmp_path / "voc"
    put(voc / "a.jpg", encoded(make_image(1), "JPEG"))
    put(voc / "a.dng", encoded(make_image(2), "TIFF"))
    put(voc / "a.xml", voc_xml(["crack"]))
    assert status(rows_of(voc, "voc"))["a.jpg"] == ("ok", "")
    put(voc / "t.csv", b"image,label\na.dng,crack\na.jpg,crack\n")
    assert rows_of(voc, "table")["a.dng"]["reason"] == "not_an_image"  # listed itself


def test_backups_and_link_targets_are_copies(tmp_path):
    root = classes(tmp_path)
    for number, name in enumerate(("0.jpg_original", "0.jpg.1", "2.jpg.old", "2.jpg - Copy")):
        put(root / "crack" / name, encoded(make_image(300 + number), "JPEG"))
    put(root / "blobs/1f0c2d", encoded(make_image(310), "JPEG"))
    (root / "oil/linked.jpg").symlink_to("../blobs/1f0c2d")
    put(root / "oil/IMG 5", encoded(make_image(311), "JPEG"))
    rows = status(rows_of(root))
    assert {path for path, row in rows.items() if row == ("ignored", "copy")} == {
        "crack/0.jpg_original", "crack/0.jpg.1", "crack/2.jpg.old", "crack/2.jpg - Copy", "blobs/1f0c2d"
    }  # fmt: skip
    assert (rows["oil/linked.jpg"], rows["oil/IMG 5"]) == (("ok", ""), ("ok", ""))
    settings = IngestSettings.model_validate({"source": "folder", "path": root})
    assert open_source(settings).classes == ["crack", "oil"]


def test_a_folder_of_unsupported_images_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        put(tmp_path / f"a/crack/{number}.heic", HEIC)
        put(tmp_path / f"a/oil/{number}.heic", HEIC)
        put(tmp_path / f"b/crack/{number}.mov", b"x")
        put(tmp_path / f"b/@eaDir/{number}.jpg", b"x")
    done = CliRunner().invoke(app, ["data", "check", "a", "--out", "report"])
    assert done.exit_code == 1
    assert "6 of 6 inputs cannot be used" in done.output
    assert "6 .heic" in done.output
    assert "pillow-heif" in done.output
    with pytest.raises(UserError, match=r"no images found(.|\n)*3 \.mov; 3 left by a NAS"):
        ingest(IngestSettings.model_validate({"source": "folder", "path": tmp_path / "b"}), tmp_path / "out", seed=0)


def test_include_and_exclude(tmp_path):
    root = classes(tmp_path)
    put(root / "crack/0_mask.png", encoded(make_image(70)))
    put(root / "masks/0.png", encoded(make_image(71)))
    put(root / "oil/old/deep/1.png", encoded(make_image(72)))
    rows = status(rows_of(root, exclude=["*_mask.png", "MASKS", "oil/**/deep/"]))
    assert {path for path, row in rows.items() if row == ("ignored", "excluded")} == {
        "crack/0_mask.png", "masks/0.png", "oil/old/deep/1.png"
    }  # fmt: skip
    settings = IngestSettings.model_validate({"source": "folder", "path": root, "exclude": ["masks"]})
    assert open_source(settings).classes == ["crack", "oil"]  # no empty class
    rows = status(rows_of(root, include=["crack/*.jpg"]))
    assert {path for path, row in rows.items() if row[0] == "ok"} == {"crack/0.jpg", "crack/2.jpg", "crack/4.jpg"}


def test_excluded_images_take_their_annotations_with_them(tmp_path):
    for name in ("a", "b"):
        put(tmp_path / f"photos/{name}.jpg", encoded(make_image(ord(name)), "JPEG"))
        put(tmp_path / f"xml/{name}.xml", voc_xml(["crack"]))
        put(tmp_path / f"masks/{name}.png", encoded(make_image(ord(name) + 10)))
    rows = status(rows_of(tmp_path, "voc", exclude=["masks", "photos/b.*"]))
    assert {path for path, row in rows.items() if row[0] == "quarantined"} == set()
    assert rows["photos/a.jpg"] == ("ok", "")
    assert rows["xml/b.xml"] == ("ignored", "excluded")
    put(tmp_path / "t.csv", b"image,label\nphotos/a.jpg,crack\nphotos/b.jpg,crack\n")
    rows = status(rows_of(tmp_path, "table", exclude=["masks", "photos/b.*", "xml"]))
    assert {path for path, row in rows.items() if row[0] == "quarantined"} == set()
    assert rows["photos/b.jpg"] == ("ignored", "excluded")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.png", ["a.png", "x/y/b.PNG"], ["a.png.txt", "png"]),
        ("masks", ["masks/a.png", "x/Masks/y/a.png"], ["mymasks/a.png"]),
        ("x/masks/", ["x/masks/a.png"], ["masks/a.png", "y/x/masks/a.png"]),
        ("**/old/*.png", ["old/a.png", "x/y/old/a.png"], ["old/x/a.png"]),
        ("x/*/a?.png", ["x/y/a1.png"], ["x/y/z/a1.png", "x/y/a.png"]),
        ("x/**", ["x/a.png", "x/y/a.png"], ["y/x.png"]),
        ("[ab]*_[!0]", ["a1_1", "b_x"], ["c_1", "a_0"]),
        ("a[", ["a["], ["a"]),
        ("裂纹/*.jpg", ["裂纹/1.jpg"], ["锈/1.jpg"]),
    ],
)
def test_patterns(pattern, fits, does_not):
    found = matcher([pattern])
    assert all(map(found, fits))
    assert not any(map(found, does_not))


def test_one_pattern_needs_no_brackets():
    assert IngestSettings.model_validate({"exclude": "*.png"}).exclude == ["*.png"]


@pytest.mark.parametrize("wrong", [[""], ["/"], ["[b-a]"]])
def test_invalid_patterns_are_refused(wrong):
    with pytest.raises(ValueError, match="pattern"):
        IngestSettings.model_validate({"exclude": wrong})
