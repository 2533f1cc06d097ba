"""A round without training: sampling, the methods' steps, bytes, quorum."""

import dataclasses
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from flows.federation.federation import Federation
from flows.federation.jobs import required_updates
from flows.methods import fedavg, fmman, load_method
from flows.methods.facts import RunFacts
from models.errors import UserError
from models.settings.model import ModelSettings
from tasks.client.objectives.label_mask.fmman import Settings as Objective
from tasks.client.payload import Payload
from tasks.core.records import Dropped, RoundRecord, StageLog
from tasks.core.round_state import RoundState
from tasks.core.train_settings import TrainSettings
from tasks.server.aggregation import loss_weights, sample_count_weights
from tests.support.recorder import GROUPS, LOSSES, SIZES, START, P, Recorder, federation, ref


def test_all_clients_take_part_unless_some_are_sampled():
    assert federation(None).sample() == ["a", "b", "c", "d"]
    clients = {f"c{i:02d}": 1 for i in range(30)}
    drawn = [federation(None, clients=clients, number=n, clients_per_round=8).sample() for n in range(1, 40)]
    assert all(len(set(ids)) == 8 and ids == sorted(ids) for ids in drawn)
    assert len({tuple(ids) for ids in drawn}) == 39
    counts = np.array([sum(client in ids for ids in drawn) for client in clients])
    assert counts.min() >= 3 and counts.max() <= 20  # 10.4 expected, deviation 2.8


def test_sampling_follows_the_round_and_not_the_order_of_clients():
    clients = {f"c{i}": 1 for i in range(9)}
    first = federation(None, clients=clients, number=3, clients_per_round=4).sample()
    turned = federation(None, clients=dict(reversed(clients.items())), number=3, clients_per_round=4).sample()
    assert first == turned


def test_required_clients_are_in_every_round_and_the_others_are_drawn():
    clients, required = {f"c{i:02d}": 1 for i in range(12)}, ("c03", "c10")
    given = {"clients": clients, "required": required, "clients_per_round": 4}
    drawn = [federation(None, number=n, **given).sample() for n in range(1, 30)]
    assert all(set(required) < set(ids) and len(ids) == 4 and ids == sorted(ids) for ids in drawn)
    assert {client for ids in drawn for client in ids} == set(clients)
    given["clients_per_round"] = 2
    assert federation(None, **given).sample() == ["c03", "c10"]


def test_a_round_has_as_many_clients_as_its_budget_allows():
    clients, model = {f"c{i:02d}": 1 for i in range(30)}, replace(START, bytes=2_000_000)

    def round_of(budget, last=None, **more):
        setup = federation(None, clients=clients, max_mb_per_round=budget, clients_per_round=8, **more).setup
        return Federation(setup, 3, RoundState.starting_from(model), last)

    first = round_of(20.0)  # 4 MB a client: the model both ways
    assert len(first.sample()) == 5 and first.record.notes == [
        "5 clients take part: a client is expected to cost 4 of 20 MB"
    ]
    assert len(round_of(100.0).sample()) == 8 and round_of(100.0).record.notes == []
    log = StageLog("training", bytes_down=3_000_000, bytes_up=1_000_000)
    last = RoundRecord(round=2, state=RoundState(), participants=["c01", "c02"], stages=[log])  # 2 MB each
    assert len(round_of(13.9, last).sample()) == 6
    with pytest.raises(UserError, match=r"round 3 is too small for 1 client.*\n.*\n.*at least 4 MB"):
        round_of(3.9).sample()
    with pytest.raises(UserError, match="too small for 3 clients"):
        round_of(11.0, required=("c00", "c01", "c02")).sample()


def references(job):
    """The reference models that a job has, each with how many it stands for."""
    return tuple((sent.ref, sent.copies) for sent in job.payload.references)


def sent_to(job):
    """A job's client, stage and all that the client trains with."""
    sent = job.payload
    assert sent.method is None and sent.personal is None
    kept = sent.private and sent.private.ref
    return job.client, job.stage, sent.start.ref, references(job), sent.own_reference, kept


def test_a_cycle_of_fmman_stage_by_stage():
    fed = federation(engine := Recorder(), fmman.Settings())
    state = fmman.run_round(fed, fed.state)
    first, third = engine.jobs[:4], engine.jobs[4:]
    assert [sent_to(job) for job in first] == [(client, 1, START, ((START, 3),), None, None) for client in "abcd"]
    ((refs, anchor, prefix, k, _),) = engine.clustered
    assert (refs, anchor, prefix, k) == ([ref("trained", c, 1) for c in "abcd"], START, "transformer.layers.0.", 3)
    # eq 14: a and d (10 and 40 images) are one group, b and c one each
    trained = {c: ref("trained", c, 1) for c in "abcd"}
    eq14 = [([trained["a"], trained["d"]], [0.2, 0.8]), ([trained["b"]], [1.0]), ([trained["c"]], [1.0])]
    assert engine.averages[:3] == eq14
    prototypes = [ref("mean", [r.digest for r in refs], weights) for refs, weights in eq14]
    assert [sent_to(job) for job in third] == [
        (c, 3, prototypes[g], tuple((p, 1) for p in prototypes), g, ref("state", c, 1))
        for c, g in zip("abcd", GROUPS, strict=True)
    ]
    # eq 15: loss times size: 5, 30, 40, 10 of 85
    refs, weights = engine.averages[3]
    assert refs == [ref("trained", c, 3) for c in "abcd"]
    assert weights == pytest.approx([5 / 85, 30 / 85, 40 / 85, 10 / 85])
    assert state.cluster_of == {"a": 0, "b": 1, "c": 2, "d": 0} and state.cluster_models == prototypes
    assert state.private == {c: ref("state", c, 3) for c in "abcd"}
    assert state.global_model == ref("mean", [r.digest for r in refs], weights)


@pytest.mark.parametrize(
    ("method", "objective", "down", "naive"),
    [
        # the formulas of docs/algorithms/fmman.md with N = 4, K = K' = 3, in units of P: stage 1 and stage 3
        ({}, {}, (4, 12), (12, 12)),
        ({"stage3_start": "best_cluster"}, {}, (4, 12), (12, 12)),
        ({"stage3_start": "local"}, {}, (4, 12), (12, 12)),
        ({}, {"mask_sources": "local", "lambda_contrast": 0, "prox": "off"}, (4, 4), (4, 4)),
        ({"stage3_start": "local"}, {"mask_sources": "local", "lambda_contrast": 0, "prox": "off"}, (4, 0), (4, 0)),
        ({"clustering": "none"}, {}, (4,), (4,)),
    ],
)
def test_bytes_follow_the_formulas(method, objective, down, naive):
    fed = federation(Recorder(), fmman.Settings(**method), objective=Objective(**objective))
    fmman.run_round(fed, fed.state)
    logs = [log for log in fed.record.stages if log.bytes_up]
    assert [log.bytes_down for log in logs] == [n * P for n in down]
    assert [log.bytes_down_naive for log in logs] == [n * P for n in naive]
    assert [log.bytes_up for log in logs] == [4 * P] * len(down)
    assert not any(log.bytes_down for log in fed.record.stages if log not in logs)


def test_clients_without_an_update_cost_only_the_download():
    fed = federation(Recorder(silent="d", refused="c"), fedavg.Settings())
    updates = fed.train(list("abcd"), Payload.of(START), stage=1, name="training")
    assert [u.client for u in updates] == ["a", "b"]
    assert (fed.record.stages[0].bytes_down, fed.record.stages[0].bytes_up) == (4 * P, 2 * P)
    assert fed.record.dropped == [Dropped("d", 1, "out of order"), Dropped("c", 1, "holds NaN")]
    assert fed.record.stages[0].clients == 2


def test_the_naive_count_includes_every_copy_of_a_prototype():
    fed = federation(Recorder(), fmman.Settings())
    twin, other = ref("twin"), ref("other")
    fed.train(list("abcd"), Payload.of(twin, references=[twin, twin, other], own=2), stage=3, name="refine")
    assert fed.record.stages[0].bytes_down == 4 * 2 * P
    assert fed.record.stages[0].bytes_down_naive == 4 * 3 * P


def test_without_clustering_there_is_one_training_and_eq15():
    fed = federation(engine := Recorder(), fmman.Settings(clustering="none"))
    fmman.run_round(fed, fed.state)
    assert {references(job) for job in engine.jobs} == {((START, 1),)} and len(engine.jobs) == 4
    assert [weights for _, weights in engine.averages] == [loss_weights(LOSSES.values(), SIZES.values())[0]]
    assert fed.state.cluster_of == {} and fed.state.cluster_models == []


def test_random_clusters_need_no_layer_and_depend_on_the_round():
    seen = []
    for number in (1, 1, 2, 3, 4):
        fed = federation(engine := Recorder(), fmman.Settings(clustering="random", clusters=2), number=number)
        fmman.run_round(fed, fed.state)
        assert engine.clustered == [] and sorted(fed.state.cluster_of.values()).count(0) == 2
        seen.append(fed.state.cluster_of)
    assert seen[0] == seen[1] and any(groups != seen[0] for groups in seen[2:])


def test_repeated_stages_use_new_seeds_and_average_in_between():
    fed = federation(engine := Recorder(), fmman.Settings(stage1_rounds=2, stage3_rounds=2, clusters=3))
    fmman.run_round(fed, fed.state)
    assert [j.stage for j in engine.jobs[::4]] == [1, 11, 3, 13]
    between = ref("mean", [r.digest for r in engine.averages[0][0]], engine.averages[0][1])
    assert engine.averages[0][1] == sample_count_weights(list(SIZES.values()))
    assert {job.payload.start.ref for job in engine.jobs[4:8]} == {between} and engine.clustered[0][1] == between
    assert [len(refs) for refs, _ in engine.averages] == [4, 2, 1, 1, 2, 1, 1, 4]


def test_a_cluster_without_updates_keeps_its_prototype():
    engine = Recorder()
    fed = federation(engine, fmman.Settings())
    old = [ref("old", k) for k in range(3)]
    updates = [engine.update(SimpleNamespace(client=c, stage=3)) for c in "ad"]
    groups = dict(zip("abcd", GROUPS, strict=True))
    new = fmman.average_clusters(fed, updates, groups, old, "refined")
    assert new[1:] == old[1:] and new[0] != old[0]


@pytest.mark.parametrize("losses", [dict.fromkeys("abcd", math.nan), dict.fromkeys("abcd", 0.0)])
def test_unusable_losses_leave_a_note(losses):
    fed = federation(engine := Recorder(losses=losses), fmman.Settings(clustering="none"))
    fmman.run_round(fed, fed.state)
    assert engine.averages[0][1] == [0.1, 0.3, 0.2, 0.4]
    assert len(fed.record.notes) == 1 and "by sample count" in fed.record.notes[0]


@pytest.mark.parametrize(("quorum", "silent", "enough"), [(0.5, "ab", True), (0.5, "abc", False), (1.0, "a", False)])
def test_too_few_reporting_clients_end_the_round(quorum, silent, enough):
    fed = federation(Recorder(silent=silent), fedavg.Settings(), quorum=quorum)
    if enough:
        fedavg.run_round(fed, fed.state)
        return
    with pytest.raises(UserError, match="too few clients reported in round 1, local training") as caught:
        fedavg.run_round(fed, fed.state)
    assert all(f"{client}: out of order" in str(caught.value) for client in silent)


def test_a_quorum_is_not_rounded_up_by_a_rounding_error():
    # 0.56 * 25 is 14.000000000000002 in binary, and 14 of 25 clients are 56 %.
    assert required_updates(0.56, 25) == 14
    assert required_updates(0.0, 25) == 1


def test_a_network_without_a_layer_to_cluster_on_is_refused():
    facts = RunFacts(fmman.Settings(), ModelSettings(name="resnet18"), TrainSettings(), None, None)
    with pytest.raises(ValueError, match="names no layer to cluster"):
        load_method("fmman").check(facts)
    load_method("fmman").check(dataclasses.replace(facts, method=fmman.Settings(cluster_on="backbone.layer4")))
    with pytest.raises(UserError, match="no such method"):
        load_method("nothing")
