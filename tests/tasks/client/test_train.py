"""The local loop: stored updates, repetition, BatchNorm policies, failures."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from models.errors import UserError
from tasks.client import train
from tasks.client.batches import BatchError, TrainingError
from tasks.client.local_data import client_data, local_data
from tasks.client.local_training import LocalTraining, Place
from tasks.client.objectives import load_objective
from tasks.client.train import find_update, train_client
from tasks.client.train_chunk import ChunkError, train_clients
from tasks.core.network import build_network
from tasks.core.randomness import numpy_generator
from tasks.core.store import state_digest
from tests.support.jobs import train_job
from tests.support.rounds import NARROW


@pytest.fixture
def plain_run(make_run):
    """A run of the plain classifier with binary cross entropy, the cheapest there is."""

    def build(name="run", **changes):
        return make_run(name, objective="bce", network=NARROW, **changes)

    return build


def training_of(context, job):
    """The job's training, before its first step."""
    place, data = Place(job.client, job.round, job.stage), local_data(context, job.client)
    return LocalTraining(context, context.open_store(), place, job.payload, job.work, data)


def is_statistic(name):
    return name.rsplit(".", 1)[-1] in ("running_mean", "running_var", "num_batches_tracked")


@pytest.mark.parametrize("clip", [None, 0.05])
def test_an_update_is_plain_sgd_on_the_clients_images(plain_run, tiny_data, clip):
    settings = {"epochs": 2, "batch_size": 5, "optimizer": "sgd", "lr": 0.05, "grad_clip": clip}
    context, start = plain_run(train=settings)
    job = train_job(tiny_data.ids[1], 2, 1, start)
    update = train_client(context, job)
    model = build_network(context, context.open_store(), start).train()
    images, targets = client_data(context, job.client)
    order = numpy_generator(context.seed, "batch order", 2, 1, job.client)
    for _ in range(2):
        total, steps = 0.0, 0
        permutation = order.permutation(11)
        for rows in (permutation[:5], permutation[5:]):  # 11 images: the last one joins the second batch of five
            y = torch.from_numpy(targets[rows]).float()
            loss = binary_cross_entropy_with_logits(model(torch.from_numpy(images[rows]) / 255), y)
            model.zero_grad()
            loss.backward()
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            scale = 1.0 if clip is None else min(1.0, clip / norm.item())
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.05 * scale * p.grad
            total, steps = total + loss.item() * y.numel(), steps + 1
    state = context.open_store().get_state(update.model)
    for name, value in model.state_dict().items():
        assert torch.allclose(state[name].float(), value.float(), atol=1e-5), name
    assert (update.client, update.samples, update.steps, update.state) == (job.client, 11, 4, None)
    assert update.sums["classification"] == pytest.approx((total, 11.0 * len(tiny_data.classes)), rel=1e-5)


def test_a_second_call_returns_the_stored_update_without_training(plain_run, tiny_data, monkeypatch):
    context, start = plain_run()
    job = train_job(tiny_data.ids[0], 1, 1, start)
    first = train_client(context, job)
    path = Path(context.open_store().path(first.model.uri))
    written = path.stat().st_mtime_ns
    monkeypatch.setattr(LocalTraining, "run", lambda *_: pytest.fail("it trains again"))
    moved = dataclasses.replace(start, uri="elsewhere.safetensors")
    assert train_client(context, train_job(job.client, 1, 1, moved)) == first, "the place does not matter"
    assert path.stat().st_mtime_ns == written
    assert context.open_store().names("updates") == sorted(p.split("/")[1] for p in (first.model.uri, json_of(first)))


def json_of(update):
    return update.model.uri.replace(".safetensors", ".json")


@pytest.mark.parametrize("damage", ["flip a bit", "cut off", "remove", "damage the record"])
def test_a_damaged_update_is_trained_again(plain_run, tiny_data, damage):
    context, start = plain_run()
    job, store = train_job(tiny_data.ids[0], 1, 1, start), context.open_store()
    first = train_client(context, job)
    name = json_of(first) if damage == "damage the record" else first.model.uri
    if damage == "remove":
        store.delete(name)
    else:
        data = store.fs.cat_file(store.path(name))
        data = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:] if damage == "flip a bit" else data[: len(data) // 2]
        store.write_bytes(name, data)
    assert find_update(store, job.output_name(context)) is None
    assert train_client(context, job).model.digest == first.model.digest
    assert store.holds(first.model)


def test_the_same_job_gives_the_same_weights_in_any_store_and_order(make_run, tiny_data):
    jobs, digests = {}, []
    for name, order in (("first", [0, 1]), ("second", [1, 0])):
        context, start = make_run(name)
        jobs[name] = [train_job(tiny_data.ids[i], 1, 1, start, [start] * 2) for i in order]
        done, dropped = train_clients(context, jobs[name], slots=1)
        assert not dropped
        digests.append({update.client: update.model.digest for update in done})
    assert digests[0] == digests[1] and len(set(digests[0].values())) == 2


@pytest.mark.parametrize("change", [{"round": 2}, {"stage": 3}, {"client": 1}])
def test_random_numbers_depend_on_round_stage_and_client(plain_run, tiny_data, change):
    context, start = plain_run()
    job = train_job(tiny_data.ids[0], 1, 1, start)
    change = {k: tiny_data.ids[v] if k == "client" else v for k, v in change.items()}
    names = {j.output_name(context) for j in (job, dataclasses.replace(job, **change))}
    assert len(names) == 2
    updates = [train_client(context, j) for j in (job, dataclasses.replace(job, **change))]
    assert updates[0].model.digest != updates[1].model.digest


def test_an_update_keeps_integers_and_leaves_frozen_tensors_out(make_run, tiny_data):
    context, start = make_run()
    update = train_client(context, train_job(tiny_data.ids[0], 1, 1, start, [start] * 3))
    state, sent = context.open_store().get_state(update.model), context.open_store().get_state(start)
    assert {n: (v.dtype, v.shape) for n, v in state.items()} == {n: (v.dtype, v.shape) for n, v in sent.items()}
    counters = [v for n, v in state.items() if n.endswith("num_batches_tracked")]
    assert len(counters) == 20 and all(v.dtype == torch.int64 and v == update.steps for v in counters)
    assert not any("label_embeddings" in name for name in state)


def test_prototypes_are_the_same_after_training(make_run, tiny_data):
    context, start = make_run()
    store = context.open_store()
    changed = {n: v + 0.01 if v.is_floating_point() else v for n, v in store.get_state(start).items()}
    other = store.put_state("other.safetensors", changed)
    training = training_of(context, train_job(tiny_data.ids[0], 1, 3, start, [start, other], own=0))
    training.run(float("inf"))
    references = training.references
    assert [state_digest(reference.model.state_dict()) for reference in references] == [start.digest, other.digest]
    assert state_digest(training.model.state_dict()) != start.digest
    assert not any(
        p.requires_grad or p.grad is not None for reference in references for p in reference.model.parameters()
    )


def test_bn_frozen_never_changes_the_statistics(plain_run, tiny_data):
    context, start = plain_run(bn_policy="frozen", train={"lr": 1e-2})
    update = train_client(context, train_job(tiny_data.ids[0], 1, 1, start))
    state, sent = (context.open_store().get_state(ref) for ref in (update.model, start))
    assert all(torch.equal(state[n], sent[n]) for n in state if is_statistic(n))
    assert not any(torch.equal(state[n], sent[n]) for n in state if n.startswith("readout"))


def test_bn_local_statistics_are_kept_for_the_next_round(plain_run, tiny_data):
    context, start = plain_run(bn_policy="local")
    first = train_client(context, train_job(tiny_data.ids[0], 1, 1, start))
    own = context.open_store().get_state(first.state)
    assert own and all(is_statistic(name) for name in own)
    assert len(own) == sum(is_statistic(name) for name in context.open_store().get_state(start))
    second = train_client(context, train_job(tiny_data.ids[0], 2, 1, start, private=first.state))
    counts = {int(v) for n, v in context.open_store().get_state(second.state).items() if "num_batches" in n}
    assert counts == {first.steps + second.steps}, "trained on from its own statistics, not from those sent"


@pytest.mark.parametrize("factor", [0.5, 50.0])
def test_training_can_start_from_the_reference_with_the_lowest_loss(plain_run, tiny_data, factor):
    context, start = plain_run()
    store, state = context.open_store(), context.open_store().get_state(start)
    bad = store.put_state("bad.safetensors", state | {"readout.bias": state["readout.bias"] + factor})
    job = train_job(tiny_data.ids[0], 1, 3, bad, [bad, start], init="best_reference")
    model = training_of(context, job).model
    losses = {}
    for ref in (bad, start):
        candidate = build_network(context, store, ref).eval()
        images, targets = client_data(context, job.client)
        y = torch.from_numpy(targets).float()
        losses[ref.digest] = binary_cross_entropy_with_logits(candidate(torch.from_numpy(images[:]) / 255), y).item()
    assert state_digest(model.state_dict()) == min(losses, key=losses.get)


def test_infinite_losses_timeouts_unknown_clients_and_wrong_weights_are_refused(plain_run, make_run, tiny_data):
    context, start = plain_run(train={"optimizer": "sgd", "lr": 1e38, "grad_clip": None, "epochs": 3})
    job = train_job(tiny_data.ids[0], 1, 1, start)
    with pytest.raises(TrainingError, match=r"not finite.*train\.lr"):
        train_client(context, job)
    with pytest.raises(TrainingError, match="client_timeout_s"):
        train_client(dataclasses.replace(context, client_timeout_s=0.0), job)
    with pytest.raises(UserError, match="no such client"):
        train_client(context, dataclasses.replace(job, client="nobody"))
    fmman, _ = make_run("fmman")
    theirs = fmman.open_store().put_state("plain.safetensors", context.open_store().get_state(start))
    with pytest.raises(UserError, match="do not fit the network"):
        train_client(fmman, train_job(job.client, 1, 1, theirs))
    assert context.open_store().names("updates") == [], "nothing half-done is left"
    jobs = [job, dataclasses.replace(job, client="nobody")]
    updates, dropped = train_clients(context, jobs, slots=1)
    assert updates == [] and [d.client for d in dropped] == [tiny_data.ids[0], "nobody"]


def test_a_failed_chunk_names_failed_clients_and_keeps_finished_ones(plain_run, tiny_data, monkeypatch):
    context, start = plain_run()
    jobs = [train_job(client, 1, 1, start) for client in tiny_data.ids[:3]]

    def flaky(context, client):
        if client == tiny_data.ids[1]:
            raise OSError("disk")
        return local_data(context, client)

    monkeypatch.setattr(train, "local_data", flaky)
    with pytest.raises(ChunkError) as caught:
        train_clients(context, jobs, slots=1)
    assert caught.value.failures == {tiny_data.ids[1]: "OSError: disk"}
    found = [find_update(context.open_store(), job.output_name(context)) is not None for job in jobs]
    assert found == [True, False, True]


def first_image(data):
    return dataclasses.replace(data, images=data.images[:1], targets=data.targets[:1])


def test_a_client_with_one_image_does_not_stop_the_others_in_its_chunk(plain_run, tiny_data, monkeypatch):
    """At 32 pixels the last map is 1 x 1, and BatchNorm refuses to train on one value."""
    context, start = plain_run()

    def small(context, client):
        data = local_data(context, client)
        return first_image(data) if client == tiny_data.ids[0] else data

    monkeypatch.setattr(train, "local_data", small)
    updates, dropped = train_clients(context, [train_job(c, 1, 1, start) for c in tiny_data.ids[:2]], slots=1)
    assert updates[-1].client == tiny_data.ids[1]
    assert {entry.client for entry in (*updates, *dropped)} == set(tiny_data.ids[:2])


def test_one_image_with_a_1x1_feature_map_is_refused_by_batchnorm(plain_run, tiny_data, monkeypatch):
    context, start = plain_run()
    monkeypatch.setattr(train, "local_data", lambda context, client: first_image(local_data(context, client)))
    with pytest.raises(BatchError, match=r"one image .* cannot be trained on.*partition\.min_size"):
        train_client(context, train_job(tiny_data.ids[0], 1, 1, start))


@pytest.mark.parametrize("error", [ValueError("no such margin"), KeyError("margin"), AssertionError("sums")])
def test_an_error_in_an_objective_keeps_its_name_and_place(plain_run, tiny_data, monkeypatch, caplog, error):
    context, start = plain_run()

    def broken(local):
        first = local.targets.sum().item()

        def step(images, targets):
            if first == slipping:
                raise error
            return sound(images, targets)

        sound = made(local)
        return step

    made = load_objective("bce").make
    slipping = int(client_data(context, tiny_data.ids[0])[1].sum())
    monkeypatch.setattr(load_objective("bce"), "make", broken)
    updates, dropped = train_clients(context, [train_job(c, 1, 1, start) for c in tiny_data.ids[:2]], slots=1)
    assert [u.client for u in updates] == [tiny_data.ids[1]]  # its neighbour in the task is not blamed
    (entry,) = dropped
    assert entry.client == tiny_data.ids[0] and "cannot be trained on" not in entry.reason
    assert type(error).__name__ in entry.reason and "test_train.py, line" in entry.reason
    assert tiny_data.ids[0] in caplog.text and "Traceback" in caplog.text
