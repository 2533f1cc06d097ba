"""Figures that nobody looks at are saved blank: drawing one takes a second, and a run or a partition makes several.

A test that looks at a figure, or proves that one can be drawn, has the marker ``figures``.
"""

import pytest


class BlankFigures:
    """Replaces `Figure.savefig` while ``on``: a blank file of the figure's format and size in pixels."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        self.on = True
        self.draw = Figure.savefig
        blank = self

        def savefig(figure, target, **options):
            return blank.save(figure, target) if blank.on else blank.draw(figure, target, **options)

        Figure.savefig = savefig

    def save(self, figure, target) -> None:
        from PIL import Image

        width, height = (round(inches * figure.dpi) for inches in figure.get_size_inches())
        Image.new("L", (width, height), 255).save(target, format="png")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item) -> None:
        """Draw for real where the test is marked; before its fixtures are made, which may draw."""
        self.on = item.get_closest_marker("figures") is None
