"""FedBN: which tensors are batch normalisation, that they stay, and networks without it."""

import pytest
import torch

from models.errors import UserError
from tasks.core.own_models import own_tensors
from tasks.core.state_schema import TensorSpec, batch_norms
from tests.support.contracts import batch_norm_tensors
from tests.support.rounds import make_context, run_rounds

SPECS = {
    "conv.weight": TensorSpec("parameter"),
    "bn.weight": TensorSpec("parameter"),
    "bn.running_mean": TensorSpec("buffer"),
    "bn.running_var": TensorSpec("buffer", nonnegative=True),
    "layer1.0.norm.running_var": TensorSpec("buffer", nonnegative=True),
    "layer1.0.norm.weight": TensorSpec("parameter"),
    "group_norm.weight": TensorSpec("parameter"),
}


def test_layers_with_running_statistics_are_batch_normalisation():
    assert batch_norms(SPECS) == ("bn.", "layer1.0.norm.")
    assert batch_norms({"norm.weight": TensorSpec("parameter")}) == ()
    names = batch_norm_tensors()
    assert {"backbone.bn1.weight", "backbone.bn1.bias", "backbone.bn1.num_batches_tracked"} <= set(names)
    assert len(names) % 5 == 0 and not any("conv" in name or "readout" in name for name in names)


@pytest.mark.slow
def test_normalisation_stays_and_the_rest_is_averaged(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})
    fed = run_rounds(2, "fedbn", context, start, tiny_data.sizes)[-1]
    store, names = context.open_store(), batch_norm_tensors()
    begun, after = store.get_state(start), store.get_state(fed.record.model)
    assert all(torch.equal(after[name], begun[name]) for name in names)
    assert all(not torch.equal(after[name], begun[name]) for name in ("readout.weight", "backbone.conv1.weight"))
    for update in fed.record.updates[1]:
        kept = store.get_state(fed.record.state.private[update.client])
        assert kept.keys() == {f"model/{name}" for name in names}
        assert not store.get_state(update.model).keys() & set(names)
        own = own_tensors(store, fed.record.state, update.client)
        assert all(torch.equal(own[name], kept.get(f"model/{name}", after[name])) for name in own)
        assert not torch.equal(own["backbone.bn1.running_mean"], begun["backbone.bn1.running_mean"])


@pytest.mark.slow
def test_a_network_without_batch_normalisation_is_refused_before_training(tiny_data, tmp_path):
    group = {"name": "resnet18", "backbone": {"width": 0.125, "norm": "group"}}
    context, start = make_context(tiny_data, tmp_path / "run", network=group)
    with pytest.raises(UserError, match="fedbn needs a network with batch normalisation") as caught:
        run_rounds(1, "fedbn", context, start, tiny_data.sizes)
    assert caught.value.found == "resnet18" and not list((tmp_path / "run").glob("updates/*.json"))
