"""A few damaged inputs of each kind; ``make fuzz`` tries many."""

import pytest

from tests.fuzz.frame import kinds, run

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", sorted(kinds()))
def test_no_exception_escapes(kind):
    summary = run(kind, kinds()[kind].SHORT, seed=20)
    assert not summary.findings, "\n".join(summary.lines())
    assert len(summary.outcomes) > 1, summary.lines()
