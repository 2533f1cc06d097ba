"""FMMAN_without_mask (table 5): no states, no eq 2, one pass over all labels, one graph for all images."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from tasks.client.objectives import Reference
from tasks.client.objectives.label_mask.fmman import make
from tasks.client.objectives.label_mask.fmman_losses import consistency_error, reconstruction_error
from tests.support.label_aware import CLASSES, data, generator, gradients, local_context, network, reference


def bare(seed):
    return network(seed, use_state=False).eval()


def test_the_loss_is_that_of_all_labels_in_one_pass():
    model, (images, targets) = bare(1), data()
    step = make(local_context(model, [Reference(bare(2)), Reference(bare(3))], lambda_contrast=0.3, lambda_prox=0.0))
    got = step(images, targets)
    out = model.head(model.encode_image(images), torch.zeros(3, CLASSES, dtype=torch.int64))
    expected = binary_cross_entropy_with_logits(out.logits, targets.float(), reduction="sum") / 3
    table = model.label_embeddings.expand(3, -1, -1)
    expected = expected + reconstruction_error(table, out.reconstruction).mean()
    expected = expected + consistency_error(out.features, out.strength).mean()
    c = torch.stack([cosine_similarity(out.z, bare(seed).embed(images), dim=-1) for seed in (2, 3)], dim=-1)
    expected = expected - 0.3 * c.log_softmax(-1).sum(-1).mean()
    assert got.total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert got.sums["classification"][1] == 3 * CLASSES and got.sums["autoencoder"][1] == 3
    ours, theirs = gradients(model, got.total), gradients(model, expected)
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-6) for name in theirs)


@pytest.mark.parametrize("settings", [{"state_init": "random01"}, {"eps": 0.4}, {"mask_sources": "global"}])
def test_settings_of_states_have_no_effect_without_states(settings):
    plain, other = (make(local_context(bare(1), [Reference(bare(2))], **s))(*data()).total for s in ({}, settings))
    assert torch.equal(plain, other)


def test_settings_of_states_have_an_effect_with_states():
    plain, other = (
        make(local_context(network(1).eval(), [reference(2)], **s))(*data()).total for s in ({}, {"eps": 0.4})
    )
    assert not torch.equal(plain, other)


def test_images_share_one_graph():
    model = bare(1)
    out = model.head(model.encode_image(data()[0]), torch.randint(-1, 2, (3, CLASSES), generator=generator(1)))
    assert torch.equal(out.adjacency[0], out.adjacency[1]) and torch.equal(out.features[0], out.features[2])
