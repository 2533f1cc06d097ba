"""Images without labels."""

from tasks.data.formats.images.reader import recognise
from tests.support.format_rows import classes_of, reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put


def test_every_image_is_unlabelled_never_negative(tmp_path):
    put(tmp_path / "a.PNG", encoded(make_image(0)))
    put(tmp_path / "相机 1/b.jpg", encoded(make_image(1), "JPEG"))
    put(tmp_path / "broken.jpg", b"<html>")
    put(tmp_path / "notes.txt", b"x")
    put(tmp_path / ".DS_Store", b"x")
    rows = rows_of("images", tmp_path)
    assert reasons(rows) == {
        "a.PNG": ("ok", "unlabelled"),
        "相机 1/b.jpg": ("ok", "unlabelled"),
        "broken.jpg": ("quarantined", "not_an_image"),
        "notes.txt": ("ignored", "other"),
        ".DS_Store": ("ignored", "hidden"),
    }
    assert rows["a.PNG"].labels is None
    assert (rows["a.PNG"].width, rows["a.PNG"].height) == (40, 30)
    assert classes_of("images", tmp_path) is None


def test_sites(tmp_path):
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / "s1/b.png", encoded(make_image(1)))
    rows = rows_of("images", tmp_path, site={"rule": "folder"})
    assert (rows["a.png"].reason, rows["s1/b.png"].reason) == ("no_site", "unlabelled")
    assert rows["s1/b.png"].site == "s1"


def test_recognise(tmp_path):
    assert recognise(tmp_path, ["a/b.TIF", "c.txt"]).startswith("1 image")
    assert recognise(tmp_path, ["c.txt"]) == ""
