"""The 16 labels of the set ``cabinet`` and their planted co-occurrence.

Four factors determine the labels of a panel: energised, an operation left half-way, signalling panel, under test.
Each site follows one of three conventions:

* sites 1, 4, 7, ..: red lamps and a switch to the right mean energised (the shared convention);
* sites 2, 5, 8, ..: switches are inverted: left means energised;
* sites 3, 6, 9, ..: lamps are inverted: green means energised, red not energised.

``site_correlation`` moves a site from the shared loadings to those of its convention, and its prevalences from
the shared ones (log-odds plus up to 0.55 either way); ``site_prevalence``, if given, moves only the prevalences.
"""

from tasks.data.formats.synthetic.multi_label import Label

# label: (words for text embeddings, shared prevalence, loadings: energised, half-way, signalling, test)
LABELS: dict[str, Label] = {
    "green-green-off": ("two green indicator lamps, both off", 0.27, (-0.70, 0.00, 0.30, 0.00)),
    "green-green-red": ("two green indicator lamps and a red one, all lit", 0.20, (0.00, 0.45, 0.60, 0.00)),
    "platen-off": ("pressure plate switched off", 0.32, (-0.70, 0.00, 0.00, 0.30)),
    "platen-on": ("pressure plate switched on", 0.34, (0.75, -0.25, 0.00, 0.00)),
    "platen-on-half": ("pressure plate only half switched on", 0.20, (0.10, 0.75, 0.00, 0.25)),
    "red": ("a red indicator lamp, lit", 0.28, (0.55, 0.00, -0.50, 0.00)),
    "red-green": ("a red and a green indicator lamp, both lit", 0.24, (0.00, 0.30, 0.65, 0.00)),
    "red-red": ("two red indicator lamps, both lit", 0.27, (0.70, 0.00, 0.35, 0.00)),
    "red-red-off": ("two red indicator lamps, both off", 0.22, (-0.50, 0.00, 0.35, 0.45)),
    "switch-center": ("rotary switch in the centre position", 0.26, (0.00, -0.30, 0.00, 0.75)),
    "switch-center-half": ("rotary switch half-way out of the centre position", 0.20, (0.00, 0.75, 0.00, 0.30)),
    "switch-left": ("rotary switch turned to the left", 0.28, (-0.75, 0.00, 0.00, -0.25)),
    "switch-right": ("rotary switch turned to the right", 0.30, (0.75, 0.00, 0.00, -0.25)),
    "transformer": ("transformer symbol, not lit", 0.25, (-0.60, 0.00, -0.40, 0.00)),
    "transformer-on": ("transformer symbol, lit", 0.28, (0.65, 0.00, -0.35, -0.20)),
    "transformer-on-half": ("transformer symbol, half lit", 0.19, (0.00, 0.75, -0.20, 0.00)),
}

_SWITCHES = ("switch-left", "switch-right")
_LAMPS = [name for name in LABELS if name.split("-")[0] in ("green", "red")]
CONVENTIONS = (((), 0), (_SWITCHES, 0), (_LAMPS, 0))  # inverted on the factor "energised"
