"""XueSGCN's server step: similar scenes by hand, sums of counts, what the global model and the clients get."""

from pathlib import Path

import pytest
import torch

from models.label_aware.xuesgcn import SceneGraphNetwork
from tasks.client.local_data import local_data
from tasks.client.local_training import LocalTraining, Place
from tasks.client.train import train_client
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.data.clients import load_clients
from tasks.server.aggregate import aggregate
from tasks.server.aggregation import pooled_variance, sample_count_weights
from tasks.server.aggregation_job import AggregationJob
from tasks.server.validate_updates import tensor_errors
from tasks.server.xuesgcn import SCENES, mix_co_occurrence, mix_scenes, nearest_scenes, total_counts
from tests.support.jobs import train_job

NETWORK = {
    "name": "xuesgcn",
    "backbone": {"width": 0.125},
    "xuesgcn": {"scenes": 3, "attention_width": 8, "graph_width": 8},
}


def counts(*values):
    """Co [K, 1, 1] of one label."""
    return torch.tensor([float(v) for v in values]).view(-1, 1, 1)


def test_the_most_similar_scene_by_hand():
    mine, others = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[-3.0, 0.0], [3.0, 4.0], [0.0, -1.0]])
    cosines, scene = nearest_scenes(mine, others)
    assert scene.tolist() == [1, 1] and cosines.tolist() == pytest.approx([0.6, 0.8])


def test_counts_are_mixed_by_similarity():
    # a's first scene is b's second one (cosine 0.6) and unlike c's only direction; its second finds 0.8 and 1.0
    heads = {
        "a": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        "b": torch.tensor([[-3.0, 0.0], [3.0, 4.0]]),
        "c": torch.tensor([[-1.0, 1e-9], [-1.0, 5.0]]) * torch.tensor([[1.0, 1.0], [0.0, 1.0]]),
    }
    mixed = mix_co_occurrence(heads, {"a": counts(10, 20), "b": counts(100, 200), "c": counts(1000, 2000)})
    assert mixed["a"].flatten().tolist() == pytest.approx(
        [(10 + 0.6 * 200) / 1.6, (20 + 0.8 * 200 + 1.0 * 2000) / (1 + 0.8 + 1.0)]
    )
    # c comes last, and gets the counts that the others had before the step
    assert mixed["c"].flatten()[1].item() == pytest.approx((2000 + 1.0 * 20 + 0.8 * 200) / 2.8)
    # b's first scene: a's best has cosine 0, which adds nothing; c's first is the same direction
    assert mixed["b"].flatten()[0].item() == pytest.approx((100 + 1.0 * 1000) / 2)


def test_opposite_scenes_and_single_clients_change_nothing():
    heads = {"a": torch.tensor([[1.0, 0.5]]), "b": torch.tensor([[-1.0, -0.5]])}
    mixed = mix_co_occurrence(heads, {"a": counts(3), "b": counts(9)})
    assert mixed["a"].item() == 3 and mixed["b"].item() == 9
    assert mix_co_occurrence({"a": torch.ones(2, 2)}, {"a": counts(5, 6)})["a"].flatten().tolist() == [5, 6]
    zero = {"a": torch.zeros(1, 2), "b": torch.ones(1, 2)}  # a row without a direction is like no other
    assert mix_co_occurrence(zero, {"a": counts(3), "b": counts(9)})["a"].item() == 3


def test_equal_clients_keep_their_counts():
    head, own = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), counts(1, 2, 3, 4)
    mixed = mix_co_occurrence(dict.fromkeys("abc", head), dict.fromkeys("abc", own))
    assert all(torch.allclose(mixed[client], own.double()) for client in "abc")


def test_the_order_of_clients_does_not_matter_to_the_bit():
    draw = torch.Generator().manual_seed(2)
    heads = {client: torch.randn(3, 5, generator=draw) for client in "abcde"}
    own = {client: torch.rand(3, 4, 4, generator=draw) * 100 for client in "abcde"}
    forth = mix_co_occurrence(heads, own)
    back = mix_co_occurrence(dict(reversed(heads.items())), dict(reversed(own.items())))
    assert all(torch.equal(forth[client], back[client]) for client in "abcde")


def test_the_global_counts_add_what_each_client_counted():
    after, before = [counts(7, 1), counts(5, 4)], [counts(5, 1), counts(0, 1)]
    assert total_counts(counts(5, 1), before, after).flatten().tolist() == [5 + 2 + 5, 1 + 0 + 3]
    whole = total_counts(torch.tensor([4]), [torch.tensor([4])], [torch.tensor([9])])
    assert whole.dtype == torch.int64 and whole.tolist() == [9]
    assert total_counts(counts(0), [counts(0.3)], [counts(0.3 - 1e-7)]).item() == 0  # rounding leaves no negative count


def trained(make_run, bn_policy="total_variance"):
    context, start = make_run(objective="asl", network=NETWORK, bn_policy=bn_policy)
    clients = load_clients(Path(context.clients)).ids[:2]
    updates = [train_client(context, train_job(client, 1, 1, start)) for client in clients]
    return context, start, updates


def step(context, start, updates, sizes=(10, 30), before=(None, None), shared=False):
    clients, refs = [u.client for u in updates], [u.model for u in updates]
    weights = tuple(sample_count_weights(sizes))
    mean = aggregate(context, AggregationJob(AggregatorSpec(), tuple(updates), weights=weights)).models["global"]
    return mix_scenes(context, clients, refs, mean, start, list(before), shared)


def initial_state(context, job):
    place = Place(job.client, job.round, job.stage)
    data = local_data(context, job.client)
    training = LocalTraining(context, context.open_store(), place, job.payload, job.work, data)
    return training.model.state_dict()


def test_training_counts_each_image_once_per_epoch_and_the_server_returns_personal_counts(make_run):
    context, start, updates = trained(make_run)
    store = context.open_store()
    clients, states = [u.client for u in updates], [store.get_state(u.model) for u in updates]
    assert [s["scene_counts"].sum().item() for s in states] == [u.samples for u in updates] == [11, 11]
    model, own = step(context, start, updates)
    out, personal = store.get_state(model), [store.get_state(own[c]) for c in clients]
    assert all(ref.uri.startswith(f"clients/{client}/") for client, ref in own.items())
    mixed = mix_co_occurrence(
        {c: s["scene_head.weight"] for c, s in zip(clients, states, strict=True)},
        {c: s["co_occurrence"] for c, s in zip(clients, states, strict=True)},
    )
    for client, state, tensors in zip(clients, states, personal, strict=True):
        assert sorted(tensors) == ["model/co_occurrence", "model/scene_counts", "model/scene_head.weight"]
        assert torch.equal(tensors["model/scene_head.weight"], state["scene_head.weight"])
        assert torch.equal(tensors["model/scene_counts"], state["scene_counts"])
        assert torch.equal(tensors["model/co_occurrence"], mixed[client].float())
    # the global model: counts are summed and never averaged, the rest is a weighted mean, variances are pooled
    assert torch.equal(out["co_occurrence"], states[0]["co_occurrence"] + states[1]["co_occurrence"])
    assert out["scene_counts"].sum() == 22 and out.keys() == states[0].keys()
    for name in ("scene_head.weight", "readout.weight", "backbone.bn1.running_mean"):
        assert torch.allclose(out[name], 0.25 * states[0][name] + 0.75 * states[1][name], atol=1e-7), name
    means, variances = ([s[f"backbone.bn1.running_{what}"] for s in states] for what in ("mean", "var"))
    pooled = pooled_variance(means, variances, sample_count_weights([10, 30]))
    assert torch.equal(out["backbone.bn1.running_var"], pooled.float())


def test_the_next_round_starts_from_personal_scenes_and_adds_only_new_counts(make_run):
    context, start, updates = trained(make_run)
    store = context.open_store()
    model, own = step(context, start, updates)
    before = [own[u.client] for u in updates]
    jobs = [train_job(client, 2, 1, model, personal=ref) for client, ref in own.items()]
    second = [train_client(context, job) for job in jobs]
    begun = [store.get_state(ref) for ref in before]
    after = [store.get_state(u.model) for u in second]
    for b, a in zip(begun, after, strict=True):
        assert (a["scene_counts"] - b["model/scene_counts"]).sum() == 11
        assert (a["co_occurrence"] >= b["model/co_occurrence"]).all()
    out = store.get_state(step(context, model, second, before=before)[0])
    added = sum(a["co_occurrence"] - b["model/co_occurrence"] for a, b in zip(after, begun, strict=True))
    assert torch.allclose(out["co_occurrence"], store.get_state(model)["co_occurrence"] + added, atol=1e-4)
    assert out["scene_counts"].sum() == 44


def test_shared_scenes_give_clients_no_personal_tensors(make_run):
    context, start, updates = trained(make_run)
    model, own = step(context, start, updates, shared=True)
    assert own == {} and model.digest == step(context, start, updates)[0].digest


@pytest.mark.parametrize("shared", [True, False])
def test_local_statistics_stay_with_the_client_in_both_versions(make_run, shared):
    context, start, updates = trained(make_run, bn_policy="local")
    store = context.open_store()
    model, own = step(context, start, updates, shared=shared)
    assert list(own) == ([] if shared else [update.client for update in updates])
    for update in updates:
        kept, mean = store.get_state(update.state), "backbone.bn1.running_mean"
        made = store.get_state(own[update.client]) if own else {}
        assert f"model/{mean}" not in made and ("model/co_occurrence" in made) == (not shared)
        # The next training starts from the client's statistics, and from its own scenes or the shared ones.
        job = train_job(update.client, 2, 1, model, private=update.state, personal=own.get(update.client))
        begun = initial_state(context, job)
        assert torch.equal(begun[mean], kept[f"model/{mean}"])
        scenes = {name: made.get(f"model/{name}", store.get_state(model)[name]) for name in SCENES}
        assert [name for name, value in scenes.items() if not torch.equal(begun[name], value)] == []


def test_a_stored_result_is_reused_for_equal_inputs_only(make_run):
    context, start, updates = trained(make_run)
    first = step(context, start, updates)
    assert step(context, start, updates) == first
    assert step(context, start, updates, sizes=(30, 10))[0] != first[0]


def test_negative_counts_are_refused():
    template = {"co_occurrence": torch.zeros(1, 2, 2), "scene_counts": torch.zeros(1, dtype=torch.int64)}
    bad = {"co_occurrence": torch.full((1, 2, 2), -1.0), "scene_counts": torch.tensor([-1])}
    kinds = SceneGraphNetwork.STATE_KINDS
    assert len(tensor_errors(bad, template, kinds)) == 2 and tensor_errors(template, template, kinds) == []
