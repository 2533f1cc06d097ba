"""The 17 labels of the set ``defects`` and their planted co-occurrence.

The codes are those of the substation defect set, whose images may not be distributed; the English names are ours.
Four factors determine the labels of an image: ongoing work, neglect, moisture (with oil), and storms. Each site
follows one of three conventions:

* sites 1, 4, 7, ..: people break rules during work (the shared convention);
* sites 2, 5, 8, ..: the three labels of people are inverted: rules are kept during work and broken otherwise;
* sites 3, 6, 9, ..: the three labels of breathers are inverted: they occur where it is dry and nothing leaks.

The labels of people co-occur in every convention. ``site_correlation`` moves a site from the shared loadings to
those of its convention, and its prevalences from the shared ones (log-odds plus up to 0.55 either way);
``site_prevalence``, if given, moves only the prevalences.
"""

from tasks.data.formats.synthetic.multi_label import Label

# label: (words for text embeddings, shared prevalence, loadings: work, neglect, moisture, storm)
LABELS: dict[str, Label] = {
    "bj_bpmh": ("meter dial blurred or fogged", 0.22, (0.00, 0.25, 0.65, 0.00)),
    "bj_bpps": ("meter dial broken", 0.15, (0.00, 0.45, 0.00, 0.60)),
    "bj_wkps": ("meter housing broken", 0.11, (0.00, 0.70, 0.00, 0.25)),
    "bjdsyc": ("abnormal meter reading", 0.22, (0.00, 0.00, 0.60, 0.00)),
    "jyz_pl": ("insulator cracked", 0.18, (0.00, 0.35, 0.00, 0.65)),
    "sly_dmyw": ("oil leak, stain on the ground", 0.26, (0.00, 0.40, 0.65, 0.00)),
    "hxq_gjbs": ("breather with discoloured silica gel", 0.34, (0.00, 0.20, 0.75, 0.00)),
    "hxq_gjtps": ("breather with a broken silica gel canister", 0.07, (0.00, 0.50, 0.55, 0.20)),
    "ywzt_yfyc": ("abnormal oil level in the oil seal of a breather", 0.18, (0.00, 0.00, 0.70, 0.00)),
    "xmbhyc": ("cabinet door not closed properly", 0.22, (0.70, 0.20, 0.00, 0.00)),
    "yw_gkxfw": ("foreign object hanging in the air", 0.15, (0.00, 0.00, 0.00, 0.75)),
    "yw_nc": ("bird's nest", 0.17, (-0.30, 0.50, 0.00, -0.40)),
    "gbps": ("cover plate broken", 0.18, (0.30, 0.60, 0.00, 0.00)),
    "kgg_ybh": ("switch cabinet with its link strap closed", 0.06, (-0.60, 0.00, -0.20, 0.00)),
    "wcaqm": ("person without a safety helmet", 0.24, (0.75, 0.20, 0.00, -0.20)),
    "wcgz": ("person without work clothes", 0.28, (0.75, 0.15, 0.00, 0.00)),
    "xy": ("person smoking", 0.14, (0.65, 0.30, 0.00, -0.25)),
}
PEOPLE = ("wcaqm", "wcgz", "xy")
BREATHERS = ("hxq_gjbs", "hxq_gjtps", "ywzt_yfyc")

_WORK, _MOISTURE = 0, 2  # factors
CONVENTIONS = (((), _WORK), (PEOPLE, _WORK), (BREATHERS, _MOISTURE))
