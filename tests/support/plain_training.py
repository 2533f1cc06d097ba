"""Local training written out with torch alone: the restatement that methods' trainings are held to, bit for bit."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from tasks.client.local_data import client_data
from tasks.core.network import build_network
from tasks.core.randomness import numpy_generator


def train_plainly(context, state, client, number, stage=1, *, trainable=("",), near=None, lam=0.0):
    """Return the tensors after one epoch in batches of 8 with a fresh optimiser, in the client's own order.

    Args:
        context: The run; loss BCE.
        state: The initial tensors by name.
        client: Whose images are trained on.
        number: The round.
        stage: The stage, part of the seed of the order.
        trainable: Prefixes of the names of the parameters that train.
        near: Tensors by name that the parameters are pulled to, by (lam/2) |theta - near|^2.
        lam: Weight of that.
    """
    model = build_network(context, context.open_store())
    model.load_state_dict(state)
    model.train()
    images, targets = client_data(context, client)
    images, how = torch.from_numpy(images[:].copy()).float() / 255, context.train
    named = {name: value for name, value in model.named_parameters() if name.startswith(trainable)}
    for name, value in model.named_parameters():
        value.requires_grad_(name in named)
    adam, sgd, parameters = torch.optim.Adam, torch.optim.SGD, list(named.values())
    optimiser = adam(parameters, how.lr) if how.optimizer == "adam" else sgd(parameters, how.lr, how.momentum)
    order = numpy_generator(context.seed, "batch order", number, stage, client).permutation(len(images))
    for rows in (order[i : i + 8] for i in range(0, len(order), 8)):
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(model(images[rows]), torch.from_numpy(targets[rows]).float())
        if near is not None:
            squares = [(value - near[name]).square().sum() for name, value in named.items()]
            loss = loss + 0.5 * lam * torch.stack(squares).sum()
        loss.backward()
        if how.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), how.grad_clip)
        optimiser.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def differing(one, other):
    """Return the names of the tensors that differ, or that only one of the two has."""
    changed = {name for name in one.keys() & other.keys() if not torch.equal(one[name], other[name])}
    return sorted(changed | (one.keys() ^ other.keys()))
