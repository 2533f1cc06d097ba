"""XueSGCN's round: what is sent, averaged, kept and evaluated."""

import dataclasses
from pathlib import Path

import pytest

from flows.federation.evaluation import evaluate_round
from flows.methods import load_method, xuesgcn
from models.errors import UserError
from tasks.client.payload import Payload, Sent
from tasks.client.work import LocalWork
from tasks.core.records import ModelRef
from tasks.core.round_state import RoundState
from tasks.server.xuesgcn import mix_scenes
from tests.support.recorder import START, P, Recorder, bytes_of, federation, ref, trained
from tests.support.rounds import NARROW, make_context, run_round, run_rounds

OWN = 50  # bytes of a client's scenes


class Scenes(Recorder):
    """The recorder with XueSGCN's server step; its clients may keep tensors themselves."""

    def __init__(self, keeps=False, **options):
        super().__init__(**options)
        self.keeps, self.mixed = keeps, []

    def update(self, job):
        update = super().update(job)
        return update if self.keeps else dataclasses.replace(update, state=None)

    def run(self, task, title, context, *args):
        if task is mix_scenes:
            self.mixed.append(args)
            clients, shared = args[0], args[-1]
            number = len(self.mixed)
            states = {} if shared else {c: ModelRef(f"{c}/{number}", f"{c}{number}", OWN) for c in clients}
            return ref("global", number), states
        return super().run(task, title, context, *args)


def round_of(engine, scenes=None, **changes):
    state = RoundState(models={"global": START}, personal=dict(scenes or {}))
    settings = xuesgcn.Settings(scene_shared=changes.pop("shared", False))
    fed = federation(engine, settings, model="xuesgcn", **({"state": state} | changes))
    fed.context.objective = "asl"
    fed.context.objective_settings = None
    return fed


def test_a_round_sends_each_client_the_model_and_its_own_scenes():
    fed = round_of(engine := Scenes())
    sent = Payload.of(START, references=())
    state = xuesgcn.run_round(fed, fed.state)
    assert [(j.client, j.stage, j.payload, j.work) for j in engine.jobs] == [
        (client, 1, sent, LocalWork()) for client in "abcd"
    ]
    weights = [0.1, 0.3, 0.2, 0.4]
    assert engine.averages == [(trained("abcd"), weights)]
    mean = ref("mean", [model.digest for model in trained("abcd")], weights)
    assert engine.mixed == [(list("abcd"), trained("abcd"), mean, START, [None] * 4, False)]
    assert state.global_model == ref("global", 1) and fed.record.weights == {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.4}
    scenes = {c: ModelRef(f"{c}/1", f"{c}1", OWN) for c in "abcd"}
    assert (state.personal, state.private, state.personalised) == (scenes, {}, list("abcd"))
    assert bytes_of(fed, "bytes_down") == {"local training": 4 * P}

    second = round_of(Scenes(), number=2, state=state)
    xuesgcn.run_round(second, second.state)
    sent = Payload.of(ref("global", 1), references=())
    assert [j.payload for j in second.engine.jobs] == [sent.with_state(None, scenes[c]) for c in "abcd"]
    assert second.engine.mixed[0][4] == list(scenes.values())
    assert bytes_of(second, "bytes_down") == bytes_of(second, "bytes_down_naive") == {"local training": 4 * (P + OWN)}
    assert bytes_of(second, "bytes_up") == {"local training": 4 * P}


def test_absent_clients_keep_their_scenes_and_are_evaluated_with_them():
    held = {c: ModelRef(f"{c}/0", f"{c}0", OWN) for c in "abc"}
    fed = round_of(engine := Scenes(silent="b"), held)
    state = xuesgcn.run_round(fed, fed.state)
    assert engine.mixed[0][0] == list("acd") and engine.mixed[0][4] == [held["a"], held["c"], None]
    assert state.personal["b"] == held["b"] and state.personal["d"] == ModelRef("d/1", "d1", OWN)
    assert state.own_model("b") == (ref("global", 1), (held["b"],))
    assert fed.record.weights == pytest.approx({"a": 1 / 7, "c": 2 / 7, "d": 4 / 7})


def test_client_statistics_and_scenes_from_the_server_are_passed_separately():
    held = {c: ModelRef(f"{c}/0", f"{c}0", OWN) for c in "abcd"}
    fed = round_of(engine := Scenes(keeps=True), held)  # bn_policy local
    state = xuesgcn.run_round(fed, fed.state)
    assert engine.mixed[0][4] == list(held.values())
    kept = {client: ref("state", client, 1) for client in "abcd"}
    made = {c: ModelRef(f"{c}/1", f"{c}1", OWN) for c in "abcd"}
    assert (state.private, state.personal) == (kept, made)

    second = round_of(Scenes(keeps=True), number=2, state=state)
    xuesgcn.run_round(second, second.state)
    sent = [(j.payload.private, j.payload.personal) for j in second.engine.jobs]
    assert sent == [(Sent(kept[c], "private", travels=False), Sent(made[c], "personal")) for c in "abcd"]
    assert bytes_of(second, "bytes_down") == {"local training": 4 * (P + OWN)}  # statistics are with the client


def test_shared_scenes_are_those_of_the_global_model():
    fed = round_of(engine := Scenes(), shared=True)
    state = xuesgcn.run_round(fed, fed.state)
    assert state.global_model == ref("global", 1)
    assert engine.mixed[0][-1] is True and state.personal == state.private == {}
    assert bytes_of(fed, "bytes_down") == {"local training": 4 * P}


def test_a_network_without_scenes_is_refused():
    fed = federation(Scenes(), xuesgcn.Settings(), model="resnet18")
    with pytest.raises(UserError, match="needs a network with scenes"):
        load_method("xuesgcn").run_round(fed, fed.state)


def test_rounds_count_every_image_and_every_clients_own_model_is_scored(tiny_data, tmp_path):
    scenes = {"scenes": 2, "attention_width": 8, "graph_width": 8}
    network = NARROW | {"name": "xuesgcn", "xuesgcn": scenes}
    context, start = make_context(tiny_data, tmp_path, objective="asl", network=network)
    first, second = run_rounds(2, "xuesgcn", context, start, tiny_data.sizes)
    store, last = context.open_store(), second.record
    assert set(last.state.personal) == set(tiny_data.ids) and last.state.private == {}
    model = store.get_state(last.model)
    assert model["scene_counts"].sum() == 2 * 44  # every training image in both rounds, in the global counts
    assert (model["co_occurrence"] >= 0).all()
    own = [store.get_state(ref) for ref in last.state.personal.values()]
    assert [state["model/scene_counts"].sum() for state in own] == [22] * 4
    evaluate_round(second.engine, context, second.settings, last, second.clients)
    assert last.metrics["images"] > 0
    assert set(last.per_client) == set(tiny_data.ids)
    shared = run_round("xuesgcn", context, start, tiny_data.sizes, own={"scene_shared": True})
    assert shared.record.state.personal == {}
    assert shared.record.model == first.record.model


def test_preset_and_docs_name_the_differences_to_the_published_code():
    root = Path(__file__).parents[2]
    for file in (root / "flows" / "settings" / "presets" / "xuesgcn.yaml", root / "docs" / "methods.md"):
        words = " ".join(line.removeprefix("# ") for line in file.read_text().splitlines())
        for said in ("one AdamW, moments and all", "by 0.9 every 4 epochs", "tenth of the rate", "a fresh "):
            assert said in words, (file.name, said)
