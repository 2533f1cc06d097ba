"""The 17 labels of the set ``inspection``: those of ``defects`` in plain words, with a co-occurrence that follows them.

Labels of one object (meter, breather, person, overhead line, cabinet, ground) share words and occur together; so do,
less strongly, the four broken things, and the two labels of oil. A site has its own prevalences (log-odds plus up to
0.55 either way, by ``site_prevalence``), but the co-occurrence is the same at all sites, as the words are.
"""

from tasks.data.formats.synthetic.multi_label import Label

_OBJECTS = ("meter", "breather", "person", "overhead", "cabinet", "ground")  # the first factors, in this order

# code of the drawing in ``defects``: (label, shared prevalence, object, loadings: object, broken, oil)
_TABLE: dict[str, tuple[str, float, str, tuple[float, float, float]]] = {
    "bj_bpmh": ("meter-dial-fogged", 0.22, "meter", (0.70, 0.00, 0.00)),
    "bj_bpps": ("meter-dial-broken", 0.18, "meter", (0.80, 0.45, 0.00)),
    "bj_wkps": ("meter-housing-broken", 0.16, "meter", (0.65, 0.55, 0.00)),
    "bjdsyc": ("meter-dial-reading-abnormal", 0.22, "meter", (0.75, 0.00, 0.00)),
    "jyz_pl": ("overhead-line-insulator-cracked", 0.18, "overhead", (0.80, 0.00, 0.00)),
    "sly_dmyw": ("ground-stained-with-oil", 0.24, "ground", (0.70, 0.00, 0.45)),
    "hxq_gjbs": ("breather-silica-gel-discoloured", 0.26, "breather", (0.80, 0.00, 0.00)),
    "hxq_gjtps": ("breather-silica-gel-canister-broken", 0.15, "breather", (0.85, 0.40, 0.00)),
    "ywzt_yfyc": ("breather-oil-level-abnormal", 0.18, "breather", (0.65, 0.00, 0.45)),
    "xmbhyc": ("cabinet-door-open", 0.22, "cabinet", (0.80, 0.00, 0.00)),
    "yw_gkxfw": ("overhead-line-with-foreign-object", 0.18, "overhead", (0.85, 0.00, 0.00)),
    "yw_nc": ("overhead-line-with-bird-nest", 0.20, "overhead", (0.85, 0.00, 0.00)),
    "gbps": ("ground-cover-plate-broken", 0.18, "ground", (0.65, 0.45, 0.00)),
    "kgg_ybh": ("cabinet-link-strap-closed", 0.16, "cabinet", (0.80, 0.00, 0.00)),
    "wcaqm": ("person-without-safety-helmet", 0.24, "person", (0.85, 0.00, 0.00)),
    "wcgz": ("person-without-work-clothes", 0.26, "person", (0.85, 0.00, 0.00)),
    "xy": ("person-who-is-smoking", 0.16, "person", (0.70, 0.00, 0.00)),
}
DRAWN_AS: tuple[str, ...] = tuple(_TABLE)  # the drawing's name in ``defects`` for each label


def _loadings(item: str, loadings: tuple[float, float, float]) -> tuple[float, ...]:
    """Return a label's loadings on all factors: the objects, broken, oil."""
    own, broken, oil = loadings
    return (*(own if item == other else 0.0 for other in _OBJECTS), broken, oil)


LABELS: dict[str, Label] = {
    name: (name.replace("-", " "), prevalence, _loadings(item, loadings))
    for name, prevalence, item, loadings in _TABLE.values()
}
