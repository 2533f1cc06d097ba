"""Damaged, unusual and wrongly named image files: each one is decoded or quarantined with the right reason."""

import gzip
import io
import struct
import warnings
import zlib

import numpy as np
from PIL import Image, ImageCms, ImageFile

from tasks.data.images.decode import DEFAULT_MAX_PIXELS
from tests.support.format_rows import reasons, rows_of
from tests.support.image_trees import OK, UPRIGHT, bad, fixed, ingested, solid, tree, with_orientation
from tests.support.voc_trees import encoded, make_image, put, voc_xml

RED, BLUE = (255, 0, 0), (0, 0, 255)
JPEG = encoded(make_image(0, 64, 64), "JPEG")


def ycck(cyan, magenta, yellow, black):
    """A JPEG of one ink colour as Adobe's programs write it: inverted, the first three inks as YCbCr."""
    y, cb, cr = Image.new("RGB", (1, 1), (cyan, magenta, yellow)).convert("YCbCr").getpixel((0, 0))
    data = bytearray(encoded(solid((255 - y, 255 - cb, 255 - cr, black), mode="CMYK"), "JPEG"))
    data[data.index(b"Adobe") + 11] = 2  # the transform flag
    return bytes(data)


def bare_png(width, height):
    """A sound PNG header without any pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def frames(kind, *images):
    return encoded(images[0], kind, save_all=True, append_images=list(images[1:]))


def swapped_profile():
    """sRGB with red and blue exchanged, so that converting by it would show."""
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = data.replace(b"rXYZ", b"?XYZ", 1).replace(b"bXYZ", b"rXYZ", 1)
    return data.replace(b"?XYZ", b"bXYZ", 1)


def by_profile(data):
    """The first pixel of a image, converted by its embedded profile."""
    image = Image.open(io.BytesIO(data))
    source = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
    return ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB")).getpixel((0, 0))


def near(pixels, colour, within=6):
    """Whether every pixel has about this colour (JPEG is lossy)."""
    return bool((np.abs(pixels - np.array(colour)) <= within).all())


def test_exif_orientation_is_applied(tmp_path):
    stored = np.asarray(make_image(1, 32, 32))
    root = tree(tmp_path / "all", {f"crack/{o}.png": with_orientation(Image.fromarray(stored), o) for o in UPRIGHT})
    found = ingested(root, tmp_path / "out")
    for orientation, upright in UPRIGHT.items():
        path = f"crack/{orientation}.png"
        assert (found.pixels[path] == upright(stored)).all(), orientation
        assert (found.rows[path].status, found.rows[path].reason) == (OK if orientation == 1 else fixed("exif"))
    root = tree(tmp_path / "voc", {"a.jpg": with_orientation(make_image(2, 48, 32), 6, "JPEG")})
    put(root / "a.xml", voc_xml(["crack"], box=(41, 1, 47, 9), size=(48, 32)))  # fits the stored frame only
    rows = rows_of("voc", root)
    assert (rows["a.jpg"].width, rows["a.jpg"].height, rows["a.jpg"].reason) == (32, 48, "exif")
    assert rows["a.xml"].reason == "annotation"
    assert "before its EXIF transposition" in rows["a.xml"].detail


def test_cmyk_and_ycck_become_rgb(tmp_path):
    inks = {"red": (0, 255, 255, 0), "blue": (255, 255, 0, 0)}
    root = tree(tmp_path / "in", {f"{n}/1.jpg": encoded(solid(c, mode="CMYK"), "JPEG") for n, c in inks.items()})
    tree(root, {f"{name}/2.jpg": ycck(*c) for name, c in inks.items()})
    found = ingested(root, tmp_path / "out")
    assert set(reasons(found.rows).values()) == {fixed("cmyk")}
    assert len(found.pixels) == 4
    for path, pixels in found.pixels.items():
        assert near(pixels, RED if path.startswith("red") else BLUE), path


def test_sixteen_bit_grey_is_scaled_and_floats_are_refused(tmp_path):
    ramp = np.tile(np.arange(256, dtype=np.uint16) * 257, (256, 1))
    modes = ("1", "L", "LA", "P", "RGB", "RGBA")
    files = {f"crack/{mode}.png": make_image(1 + i).convert(mode) for i, mode in enumerate(modes)}
    files |= {f"crack/{mode}.tif": encoded(make_image(0).convert(mode), "TIFF") for mode in "FI"}
    root = tree(tmp_path / "in", files | {"crack/ramp.png": Image.fromarray(ramp)})
    found = ingested(root, tmp_path / "out", image_size=256)
    assert (found.pixels["crack/ramp.png"] == np.arange(256)[None, :, None]).all()
    expected = {f"crack/{mode}.png": OK for mode in modes} | {f"crack/{mode}.tif": bad("bad_mode") for mode in "FI"}
    assert reasons(found.rows) == expected | {"crack/ramp.png": fixed("gray16")}
    assert found.summary["reasons"]["gray16"] == 1


def test_transparency_shows_the_background(tmp_path):
    palette = solid(0, mode="P")
    palette.putpalette([*RED, *BLUE])
    files = {
        "crack/palette.png": encoded(palette, transparency=0),
        "crack/grey.png": solid((200, 0), mode="LA"),
        "crack/rgba.png": solid((*RED, 0), mode="RGBA"),
        "crack/key.png": encoded(solid(RED), transparency=RED),
        "crack/half.png": solid((0, 0, 0, 51), mode="RGBA"),  # one fifth black
    }
    root = tree(tmp_path / "in", files)
    white, own = ingested(root, tmp_path / "white"), ingested(root, tmp_path / "own", background=(10, 200, 30))
    assert reasons(white.rows) == dict.fromkeys(files, fixed("alpha"))
    for path in files:
        fifth = path == "crack/half.png"
        assert near(white.pixels[path], (204, 204, 204) if fifth else (255, 255, 255), 1), path
        assert near(own.pixels[path], (8, 160, 24) if fifth else (10, 200, 30), 1), path


def test_truncated_images_are_quarantined(tmp_path):
    png = encoded(make_image(0, 64, 64))
    root = tree(tmp_path, {"a.jpg": JPEG[: len(JPEG) // 2], "b.png": png[: len(png) // 2], "c.jpg": JPEG[:-100]})
    with Image.open(root / "a.jpg") as image:
        image.verify()  # which is why ingestion decodes everything
    rows = rows_of("images", root)
    assert set(reasons(rows).values()) == {bad("truncated")}
    assert (rows["a.jpg"].width, rows["a.jpg"].height) == (64, 64)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_empty_files_and_other_content_are_quarantined(tmp_path):
    root = tree(tmp_path, {"a.jpg": b"", "b.jpg": b"<!doctype html><title>404</title>", "c.jpg": gzip.compress(JPEG)})
    rows = rows_of("images", root)
    assert reasons(rows) == {"a.jpg": bad("empty"), "b.jpg": bad("not_an_image"), "c.jpg": bad("not_an_image")}


def test_content_decides_over_the_suffix(tmp_path):
    files = {"crack/a.jpg": encoded(make_image(1, 32, 32)), "crack/b.png": encoded(solid(RED), "JPEG")}
    found = ingested(tree(tmp_path / "in", files), tmp_path / "out")
    assert reasons(found.rows) == dict.fromkeys(files, OK)
    assert [found.rows[path].detail for path in files] == ["PNG content", "JPEG content"]
    assert (found.pixels["crack/a.jpg"] == np.asarray(make_image(1, 32, 32))).all()
    assert near(found.pixels["crack/b.png"], RED)


def test_unusual_suffixes_are_read_once(tmp_path):
    names = {"a.JPG": "JPEG", "b.JPEG": "JPEG", "c.Bmp": "BMP", "d.jfif": "JPEG", "e.PNG": "PNG", "f.TIFF": "TIFF"}
    files = {f"crack/{name}": encoded(make_image(i), kind) for i, (name, kind) in enumerate(names.items())}
    found = ingested(tree(tmp_path / "in", files), tmp_path / "out")
    assert reasons(found.rows) == {f"crack/{name}": OK for name in names}
    assert (found.summary["images"], found.summary["files"]) == (6, 6)  # each once


def test_names_in_other_scripts(tmp_path):
    site, name = "变电站 一", "红外 图"
    root = tree(tmp_path / "数据 集", {f"{site}/图 片/{name}.JPG": encoded(make_image(0), "JPEG")})
    put(root / site / "标注" / f"{name}.xml", voc_xml(["表计破损"]))
    tree(root, {f"{site}/re\u0301seau.png": make_image(1)})
    put(root / site / "r\u00e9seau.xml", voc_xml(["鸟巢"]))  # composed; the image's name is not
    found = ingested(root, tmp_path / "输 出", "voc", site={"rule": "folder"})
    assert found.labels == {f"{site}/图 片/{name}.JPG": ["表计破损"], f"{site}/re\u0301seau.png": ["鸟巢"]}
    assert set(found.sites.values()) == {site}
    assert {row.status for row in found.rows.values()} == {"ok"}


def test_huge_images_are_refused_by_their_header(tmp_path):
    root = tree(tmp_path / "in", {"crack/a.png": bare_png(10_000, 10_000), "crack/b.png": bare_png(20_000, 10_000)})
    tree(root, {"crack/c.png": make_image(0, 100, 101), "crack/d.png": make_image(1, 100, 100)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        found = ingested(root, tmp_path / "out", max_pixels=10_000)
    # a and b hold no pixels: only a check of the header can find them too large
    assert reasons(found.rows) == {f"crack/{name}.png": bad("too_large") for name in "abc"} | {"crack/d.png": OK}
    assert (found.rows["crack/a.png"].width, found.rows["crack/c.png"].height) == (10_000, 101)
    assert Image.MAX_IMAGE_PIXELS == DEFAULT_MAX_PIXELS


def test_several_frames_are_quarantined(tmp_path):
    three = (solid(RED), solid(BLUE), solid((0, 255, 0)))
    moving = {f"crack/{kind}.{kind}": frames(kind, *three) for kind in ("gif", "tiff", "png", "webp")}
    others = {"crack/phone.jpg": frames("MPO", *three[:2]), "crack/still.gif": encoded(solid(BLUE), "GIF")}
    found = ingested(tree(tmp_path / "in", moving | others), tmp_path / "out")
    expected = {"crack/phone.jpg": fixed("mpo"), "crack/still.gif": OK}
    assert reasons(found.rows) == expected | dict.fromkeys(moving, bad("multi_frame"))
    assert near(found.pixels["crack/phone.jpg"], RED)


def test_colour_profiles_are_ignored(tmp_path):
    data = encoded(solid(RED), icc_profile=swapped_profile())
    assert by_profile(data) == BLUE  # it would show
    files = {"crack/a.png": data, "crack/b.png": encoded(solid((250, 9, 9)), icc_profile=b"no profile at all")}
    found = ingested(tree(tmp_path / "in", files), tmp_path / "out")
    assert set(reasons(found.rows).values()) == {OK}
    assert near(found.pixels["crack/a.png"], RED, 0)


def test_duplicates_are_kept_once(tmp_path):
    root = tmp_path / "in"
    for i in range(12):
        label = "crack" if i % 2 else "oil"
        tree(root, {f"a/{label}/{i}.png": make_image(i), f"b/{label}/again{i}.png": make_image(i)})
    mixed = {f"{folder}/mixed.png": make_image(51) for folder in ("a/oil", "b/crack")}
    tree(root, {"b/oil/own.png": make_image(50)} | mixed)
    found = ingested(root, tmp_path / "out", site={"rule": "folder"})
    firsts = [row for path, row in found.rows.items() if path in found.splits]
    assert len({row.sha256 for row in firsts}) == len(firsts) == 13
    assert set(found.splits.values()) == {"train", "val", "test"}
    assert sum(row.reason == "duplicate" for row in found.rows.values()) == 12
    assert found.rows["b/oil/again4.png"].detail == "same bytes as a/oil/4.png"
    assert all(found.rows[path].reason == "duplicate_conflict" for path in ("a/oil/mixed.png", "b/crack/mixed.png"))
    files = {f"{split}/oil/{n}.png": make_image(n) for n, split in enumerate(("train", "test"))}
    root = tree(tmp_path / "given", files)
    tree(root, {"train/oil/leak.png": make_image(1)})  # the bytes of the test image
    given = ingested(root, tmp_path / "out2", split={"scheme": "given", "val": 0})
    assert given.splits == {"train/oil/0.png": "train", "test/oil/1.png": "test"}


def test_system_files_are_ignored(tmp_path):
    hidden = ("crack/Thumbs.db", "crack/.DS_Store", "crack/._a.jpg", ".git/b.png")
    root = tree(tmp_path / "in", {"crack/a.jpg": JPEG, "crack/a.json": b"{}"} | dict.fromkeys(hidden, b"\0\1"))
    found = ingested(root, tmp_path / "out", max_bad_share=0)  # ignored is not quarantined
    expected = {"crack/a.jpg": OK, "crack/a.json": ("ignored", "other")}
    assert reasons(found.rows) == expected | dict.fromkeys(hidden, ("ignored", "hidden"))


def test_image_sizes_and_the_shortest_side(tmp_path):
    sizes = {"wide": (300, 17), "tall": (16, 200), "same": (32, 32), "low": (40, 15), "dot": (1, 1)}
    root = tree(tmp_path / "in", {f"crack/{n}.png": make_image(i, *size) for i, (n, size) in enumerate(sizes.items())})
    found = ingested(root, tmp_path / "out")
    assert reasons(found.rows) == {f"crack/{n}.png": bad("too_small") if n in ("low", "dot") else OK for n in sizes}
    assert {(row.width, row.height) for row in found.rows.values()} == set(sizes.values())
    assert {pixels.shape for pixels in found.pixels.values()} == {(32, 32, 3)}
    assert ingested(root, tmp_path / "out2", min_side=15).rows["crack/low.png"].status == "ok"
