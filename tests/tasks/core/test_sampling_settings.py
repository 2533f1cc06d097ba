"""How likely clients are drawn: weights by hand, what is refused, and that draws follow them."""

from collections import Counter

import pytest
from pydantic import ValidationError

from tasks.core.federation_settings import FederationSettings
from tasks.core.sampling_settings import SamplingSettings
from tests.support.recorder import Recorder, federation

GIVEN = {"a": 8.0, "b": 1.0, "c": 1.0, "d": 6.0}


def draws(rounds=3000, **settings):
    """How often each of four clients takes part, as a share of the rounds."""
    found = Counter()
    for number in range(1, rounds + 1):
        found.update(federation(Recorder(), model="resnet18", number=number, **settings).sample())
    return {client: count / rounds for client, count in found.items()}


def test_weights_by_hand():
    zipf = SamplingSettings(name="zipf", exponent=2.0)
    assert zipf.weight_of(["b", "a", "d", "c"]) == {"a": 1, "b": 1 / 4, "c": 1 / 9, "d": 1 / 16}
    assert SamplingSettings().weight_of("ab") == {"a": 1, "b": 1}
    assert SamplingSettings(name="given", weights=GIVEN).weight_of("abcd") == GIVEN


def test_one_client_a_round_is_drawn_as_often_as_its_weight_says():
    shares = draws(clients_per_round=1, sampling={"name": "given", "weights": GIVEN})
    assert shares == {c: pytest.approx(w / 16, abs=0.03) for c, w in GIVEN.items()}
    zipf = draws(clients_per_round=1, sampling={"name": "zipf"})
    assert zipf == {c: pytest.approx(12 / 25 / rank, abs=0.03) for rank, c in enumerate("abcd", 1)}


def test_two_clients_a_round_are_drawn_one_after_the_other():
    """a is drawn first with 1/2, else after d (3/8 x 8/10), b or c (1/16 x 8/15 each)."""
    shares = draws(clients_per_round=2, sampling={"name": "given", "weights": GIVEN})
    assert shares["a"] == pytest.approx(1 / 2 + 3 / 8 * 0.8 + 2 / 16 * 8 / 15, abs=0.03)


def test_required_clients_take_part_whatever_their_weight():
    shares = draws(200, clients_per_round=2, required=("b",), sampling={"name": "given", "weights": GIVEN})
    assert shares["b"] == 1 and sum(shares.values()) == pytest.approx(2)


def test_equal_weights_draw_from_all_and_the_default_is_unchanged():
    with_default = [federation(Recorder(), model="resnet18", number=n, clients_per_round=2).sample() for n in range(9)]
    alike = [
        federation(Recorder(), model="resnet18", number=n, clients_per_round=2, sampling={"name": "uniform"}).sample()
        for n in range(9)
    ]
    assert with_default == alike and {client for ids in alike for client in ids} == set("abcd")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exponent": 2}, "exponent is 2.0, but it is for the sampling zipf"),
        ({"name": "zipf", "weights": {"a": 1}}, "it is for the sampling given"),
        ({"name": "given"}, "set federation.sampling.weights"),
        ({"name": "given", "weights": {"a": 0}}, "greater than 0"),
        ({"name": "zipf", "exponent": 0}, "greater than 0"),
    ],
)
def test_sampling_without_sense_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        SamplingSettings.model_validate(values)


def test_sampling_needs_rounds_with_some_of_the_clients():
    with pytest.raises(ValidationError, match="all clients take part: set clients_per_round"):
        FederationSettings(sampling=SamplingSettings(name="zipf"))
    assert FederationSettings(sampling=SamplingSettings(name="zipf"), max_mb_per_round=10.0)


def test_weights_name_every_client_and_no_other():
    given = SamplingSettings(name="given", weights={"a": 1, "z": 2})
    with pytest.raises(ValueError, match="without one: b; not in the partition: z"):
        given.check(["a", "b"])
    given.check(["z", "a"])
    SamplingSettings().check(["a"])
