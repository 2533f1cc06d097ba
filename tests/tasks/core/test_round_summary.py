"""The numbers that tracking and report take from a round, checked by hand."""

import math

from tasks.core.names import metric_part, metric_parts
from tasks.core.records import ModelRef, RoundRecord, Update
from tasks.core.round_state import RoundState
from tasks.core.round_summary import (
    best_round,
    client_losses,
    client_quality,
    last_evaluated,
    round_metrics,
)
from tasks.tracking.tags import best_tags
from tests.support.fabricated import fabricated_record


def test_rounds_without_evaluation_are_skipped():
    records = [fabricated_record(number) for number in (1, 2, 3, 4)]
    records[1].metrics["macro_ap"] = 0.99
    for record in (records[0], records[2], records[3]):
        record.metrics, record.per_class, record.per_site = {}, {}, {}
    assert (best_round(records), last_evaluated(records).round) == (2, 2)
    metrics = round_metrics(records[2])
    assert not any(name.startswith(("macro", "class/", "site/", "local/")) for name in metrics)
    assert metrics["round"] == 3 and metrics["total/bytes_up"] > 0 and metrics["clients/completed"] == 9
    tags: dict[str, str] = {}
    for record in records:
        tags |= best_tags(tags, record)
    assert tags["fedscene.best_round"] == "2"
    not_evaluated = [records[0], records[2]]
    assert (best_round(not_evaluated), last_evaluated(not_evaluated).round) == (3, 3)


def test_distributions_over_clients_reach_mlflow():
    record = fabricated_record(1)
    record.metrics |= {"local/macro_ap/mean": 0.4, "local/macro_ap/worst_decile": 0.1}
    metrics = round_metrics(record)
    assert (metrics["local/macro_ap/mean"], metrics["local/macro_ap/worst_decile"]) == (0.4, 0.1)


def test_client_quality_is_measured_on_the_local_test_set_if_there_is_one():
    record = RoundRecord(1, RoundState.starting_from(ModelRef("m", "d", 1)))
    record.per_client = {
        "a": {"local/macro_ap": 0.5, "global/macro_ap": 0.9},
        "b": {"global/macro_ap": 0.7},
        "c": {"local/macro_ap": math.nan, "global/macro_ap": 0.9},
    }
    assert client_quality(record) == {"a": 0.5, "b": 0.7}


def test_client_losses_are_means_of_the_last_stage():
    def update(client: str, sums: dict) -> Update:
        return Update(client, ModelRef("u", "d", 1), 1, 1, sums, 0.1)

    record = RoundRecord(
        1,
        RoundState.starting_from(ModelRef("m", "d", 1)),
        updates={
            1: [update("a", {"classification": (9.0, 1.0)})],
            3: [update("a", {"classification": (1.0, 2.0)}), update("b", {"classification": (6.0, 4.0)})],
        },
    )
    assert client_losses(record) == {"classification": {"a": 0.5, "b": 1.5}}
    metrics = round_metrics(record)
    assert metrics["client_loss/stage3/classification/mean"] == 1.0
    assert metrics["client_loss/stage3/classification/std"] == 0.5
    assert metrics["client_loss/stage3/classification/worst_decile"] == 1.5
    assert metrics["client_loss/stage1/classification/mean"] == 9.0


def test_round_metrics_names_sizes_and_totals():
    metrics = round_metrics(fabricated_record(3))  # client-03 is out, so nine answer and sit in three clusters
    assert (metrics["clients/participants"], metrics["clients/completed"], metrics["clients/dropped"]) == (10, 9, 1)
    assert [metrics[f"clusters/{k}/size"] for k in range(3)] == [3, 3, 3]
    assert metrics["total/bytes_up"] == 2 * 9 * 400_000 == metrics["stage/train/bytes_up"] * 2
    assert metrics["total/seconds"] == 4 + 5 + 6 + 7
    assert metrics["round"] == 3


def test_names_that_mlflow_refuses_are_changed_and_never_merged():
    names = ["rust%", "rust?", "rust_", "Rust_", "绝缘子 1", "x" * 300, "x" * 301, "..", ""]
    record = fabricated_record(1, classes=names)
    metrics = round_metrics(record)
    parts = metric_parts(names)
    for name in names:  # a key is its name's own, whatever comes before it and which others there are
        found = {
            key.rsplit("/", 1)[1]: value for key, value in metrics.items() if key.startswith(f"class/{parts[name]}/")
        }
        assert found == record.per_class[name]
        assert round_metrics(fabricated_record(1, classes=[name]))[f"class/{metric_part(name)}/support"] >= 0
    assert parts["绝缘子 1"] == "绝缘子 1" and max(map(len, metrics)) <= 250
