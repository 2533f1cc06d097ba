"""The task ``aggregate``: updates become models by an aggregator (docs/algorithms/aggregation.md).

Phase 1 weighs the updates; phase 2 goes through the tensors in name order, and through each tensor in ranges of
entries. A range of every update is in memory at once, never a whole tensor of every update: a thousand updates need as
much memory as ten. The output's name is the digest of all inputs, so a repeated aggregation finds the finished models.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from models.errors import UserError
from tasks.core.records import ModelRef, Update
from tasks.core.state_schema import TensorSpec, read_schema, spec_of
from tasks.core.state_stream import Layout, StateFile, StateWriter, ranges
from tasks.core.store import Store
from tasks.server.aggregation import all_finite, check_weights, sample_count_weights, weighted_mean
from tasks.server.aggregation_job import Aggregated, AggregationJob, WeightTable
from tasks.server.aggregators import Aggregator, Combined, Mixing, SparseRow, TensorJob, load_aggregator, stacked
from tasks.server.aggregators.mixing import Row, as_matrix, count_positive, positive, stored_weights
from tasks.server.aggregators.received import MIN_RANGE, Received, entries_per_update
from tasks.server.mixing_record import mixing_tensors

if TYPE_CHECKING:
    from tasks.core.context import RunContext

IN_CACHE = 1 << 16  # entries of a range that one update after the other is added to: 512 KB in float64
DENSE = 4  # with more weights above 0 per update than this, a linear mixing is a matrix product
PRODUCT = 1 << 21  # entries of all updates, or of all models, in such a product: 16 MB in float64
VARIANCE, MEAN = ".running_var", ".running_mean"


def aggregate(context: "RunContext", job: AggregationJob) -> Aggregated:
    """Combine updates into models, or return the finished ones.

    Args:
        context: The run.
        job: What is aggregated, and how.

    Raises:
        UserError: If weights do not sum to 1, models do not have the same tensors, or the aggregator refuses them.
    """
    if not job.updates:
        raise UserError("there is no update to aggregate", where="aggregation")
    store, job = context.open_store(), job.in_client_order()
    name = job.output_name(context.fingerprint)
    if done := _find(store, name, job.updates):
        return done
    module = load_aggregator(job.spec.name)
    aggregator = module.make(module.Settings.model_validate(dict(job.spec.values)))
    with contextlib.ExitStack() as stack:

        def opened(ref: ModelRef) -> StateFile:
            return StateFile(stack.enter_context(store.local(ref.uri)))

        files: list[StateFile] = []
        for update in job.updates:
            files.append(opened(update.model) if not files else opened(update.model).like(files[0]))
        _require_equal_tensors(files)
        weights = list(job.weights or sample_count_weights([update.samples for update in job.updates]))
        check_weights(weights)
        begun = opened(job.start) if job.start else None
        starts = [opened(ref).like(files[0]) for ref in job.starts] if job.starts else None
        received = Received(job.updates, weights, read_schema(context), job.facts, files, begun, starts)
        mixing = Mixing(tuple(job.rows), tuple(job.rows.values())) if job.rows else aggregator.weigh(received)
        _require_rows(mixing, len(files))
        state = opened(job.state) if job.state else None
        result = _Phase2(store, name, aggregator, received, mixing, state, context.bn_policy).run()
    return _stored(store, name, replace(result, mixing=_recorded(store, name, mixing, job.updates)), mixing)


def _recorded(store: Store, name: str, mixing: Mixing, updates: Sequence[Update]) -> ModelRef | None:
    """Store the weights between clients by layer, if models of single clients come out."""
    tensors = mixing_tensors(mixing, [update.client for update in updates])
    return store.put_state(f"updates/aggregated-mixing-{name}.safetensors", tensors) if tensors else None


def _stored(store: Store, name: str, result: Aggregated, mixing: Mixing) -> Aggregated:
    """Write down the finished result, for ``_find``; return it."""
    # As tensors: a thousand models of a thousand clients have a million weights.
    own = [positive(row) for row in mixing.rows]
    values = [row[at] for row, places in zip(mixing.rows, own, strict=True) for at in places]
    rows = {
        "weights": torch.tensor(values, dtype=torch.float64),
        "positions": torch.tensor([at for places in own for at in places], dtype=torch.int32),
        "counts": torch.tensor([len(places) for places in own], dtype=torch.int32),
    }
    refs = {"state": result.state, "mixing": result.mixing}
    refs["weights"] = store.put_state(f"updates/aggregated-weights-{name}.safetensors", rows)
    plain = {"models": {key: asdict(ref) for key, ref in result.models.items()}, "evaluated": result.evaluated}
    plain["outputs"] = list(mixing.outputs)  # in the order of the rows; keys are sorted in the file
    store.write_json(
        f"updates/aggregated-{name}.json", plain | {key: asdict(ref) if ref else None for key, ref in refs.items()}
    )
    return result


def _find(store: Store, name: str, updates: Sequence[Update]) -> Aggregated | None:
    """Return the finished result of that name if its models exist and verify."""
    if not store.exists(f"updates/aggregated-{name}.json"):
        return None
    try:
        value = store.read_json(f"updates/aggregated-{name}.json")
        models = {key: ModelRef.of(value["models"][key]) for key in value["outputs"]}
        state, mixing = (ModelRef.of(value[key]) if value[key] else None for key in ("state", "mixing"))
        stored = store.get_state(ModelRef.of(value["weights"]))
        counts = stored["counts"].tolist()
        parts = zip(*(stored[key].split(counts) for key in ("positions", "weights")), strict=True)
        rows = [SparseRow(len(updates), places.tolist(), row.tolist()) for places, row in parts]
        weights = WeightTable(list(models), [update.client for update in updates], rows)
        done = Aggregated(models, state, weights, value["evaluated"], mixing)
    except (UserError, KeyError, TypeError, ValueError, RuntimeError, AttributeError):  # damaged: compute it again
        return None
    return done if all(store.holds(ref) for ref in (*models.values(), state, mixing) if ref) else None


def _require_equal_tensors(files: Sequence[StateFile]) -> None:
    """Refuse models whose tensors differ in name, type or shape."""
    first = {name: (entry.dtype, entry.shape) for name, entry in files[0].entries.items()}
    for file in files[1:]:
        other = {name: (entry.dtype, entry.shape) for name, entry in file.entries.items()}
        if other.keys() != first.keys():
            raise UserError("models with different tensors cannot be combined", where="aggregation", found=file.path)
        if name := next((name for name in first if other[name] != first[name]), None):
            raise UserError("tensors of different shapes cannot be combined", where=f"aggregation: {name}")


def _require_rows(mixing: Mixing, updates: int) -> None:
    """Refuse weights that are not one row of N per model, each with sum 1."""
    for rows in (mixing.rows, *mixing.layers.values()):
        if len(rows) != len(mixing.outputs) or any(len(row) != updates for row in rows):
            found = f"rows of {[len(row) for row in rows][:5]} weights for {len(mixing.outputs)} models"
            raise UserError("weights do not fit the updates", where="aggregation", expected=updates, found=found)
        for row in rows:
            check_weights(stored_weights(row))


class _Phase2:
    """The second phase: tensor by tensor, range by range.

    Args:
        store: The run's store.
        name: The outputs' name.
        aggregator: Combines the values of one tensor.
        received: The updates.
        mixing: What the first phase decided.
        state: The aggregator's tensors of the previous round.
        bn_policy: ``total_variance`` pools running variances.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        aggregator: Aggregator,
        received: Received,
        mixing: Mixing,
        state: StateFile | None,
        bn_policy: str,
    ) -> None:
        self.store, self.name, self.aggregator, self.received = store, name, aggregator, received
        self.mixing, self.state, self.bn_policy = mixing, state, bn_policy
        self.linear = type(aggregator).combine is Aggregator.combine
        self.after: dict[str, Tensor] = {}

    def run(self) -> Aggregated:
        """Write the models and the aggregator's state; return their references."""
        entries = self.received.files[0].entries
        begun = self.received.start
        # What clients keep for themselves stays as it was sent.
        unsent = {name: entry for name, entry in (begun.entries if begun else {}).items() if name not in entries}
        layout = Layout({name: (entry.dtype, entry.shape) for name, entry in (entries | unsent).items()})
        uris = [f"updates/aggregated-{k}-{self.name}.safetensors" for k in range(len(self.mixing.outputs))]
        with contextlib.ExitStack() as stack:
            self.writers = [StateWriter(stack.enter_context(self.store.new_file(uri)), layout) for uri in uris]
            for tensor in layout.names:
                if tensor in entries:
                    self._tensor(tensor)
                    continue
                assert begun is not None
                for writer in self.writers:
                    writer.write(tensor, begun.read(tensor, 0, unsent[tensor].numel))
            digests = [writer.finish() for writer in self.writers]
        refs = [ModelRef(uri, digest, layout.bytes) for uri, digest in zip(uris, digests, strict=True)]
        clients = [update.client for update in self.received.updates]
        weights = WeightTable(self.mixing.outputs, clients, self.mixing.rows)
        evaluated = self.aggregator.evaluated if self.aggregator.evaluated in self.mixing.outputs else "global"
        state = None
        if self.after:
            state = self.store.put_state(f"updates/aggregated-state-{self.name}.safetensors", self.after)
        return Aggregated(dict(zip(self.mixing.outputs, refs, strict=True)), state, weights, evaluated)

    def _tensor(self, name: str) -> None:
        """Combine one tensor for all models."""
        spec, entry = spec_of(self.received.schema, name), self.received.files[0].entries[name]
        rows, floating = self.mixing.rows_of(name), entry.dtype.is_floating_point
        single = floating and self.linear and len(rows) == 1 and not any(self._pooled(name))
        dense = sum(map(count_positive, rows)) > DENSE * len(self.received.files)
        count = 1 if single else max(len(self.received.files), len(rows))  # of values in memory at once
        most = max(MIN_RANGE, PRODUCT // count) if self.linear and dense else min(entries_per_update(count), IN_CACHE)
        parts = list(ranges(entry.numel, most))
        if not parts or (floating and not self.aggregator.elementwise):
            parts = [(0, entry.numel)]
        for start, stop in parts:
            if not floating:
                values = stacked([file.read(name, start, stop) for file in self.received.files])
                new = [values[positive(row)].amax(0) for row in rows]
            elif self.linear and dense:
                new = self._product(name, rows, start, stop)
            elif single:
                new = [self._mean(name, rows[0], start, stop)]
            else:
                new = self._combined(name, spec, rows, start, stop)
            for writer, value in zip(self.writers, new, strict=True):
                self._write(writer, name, value.to(entry.dtype))

    def _mean(self, name: str, row: Row, start: int, stop: int) -> Tensor:
        """Return a range of one tensor of the only model: one update after the other is read and added."""
        own = positive(row)
        return weighted_mean((self.received.files[i].read(name, start, stop) for i in own), [row[i] for i in own])

    def _product(self, name: str, rows: Sequence[Row], start: int, stop: int) -> list[Tensor]:
        """Return a range of one tensor of every model as a product of matrices; of pooled variances as of moments."""
        weights = as_matrix(rows)

        def values(tensor: str) -> Tensor:
            return stacked([file.read(tensor, start, stop) for file in self.received.files], torch.float64)

        own, pooled = values(name), torch.tensor(self._pooled(name))
        mixed = weights @ own
        if pooled.any():
            means = values(name.replace(VARIANCE, MEAN))
            moments = weights @ (own + means.square()) - (weights @ means).square()
            mixed[pooled] = moments[pooled].clamp_(min=0)
        return list(mixed)

    def _pooled(self, name: str) -> list[bool]:
        """Return for each model whether a tensor holds running variances that are pooled."""
        pools = self.aggregator.pools_variances
        return [name.endswith(VARIANCE) and pools(output, self.bn_policy) for output in self.mixing.outputs]

    def _combined(self, name: str, spec: TensorSpec, rows: Sequence[Row], start: int, stop: int) -> list[Tensor]:
        """Return a range of one tensor of every model, combined by the aggregator."""
        used, pooled = sorted(set[int]().union(*map(positive, rows))), self._pooled(name)
        shape = (stop - start,) if self.aggregator.elementwise else self.received.files[0].entries[name].shape

        def read(file: StateFile, tensor: str) -> Tensor:
            return file.read(tensor, start, stop).reshape(shape)

        values = {i: read(self.received.files[i], name) for i in used}
        means = {i: read(self.received.files[i], name.replace(VARIANCE, MEAN)) for i in used if any(pooled)}
        begun = self.received.start
        sent = read(begun, name) if begun is not None and name in begun.entries else None
        out = []
        for output, row, pools in zip(self.mixing.outputs, rows, pooled, strict=True):
            own = positive(row)
            prefix = "" if output == "global" else f"{output}/"
            before = {slot: read(self.state, key) for slot, key in self._slots(prefix, name).items() if self.state}
            job = TensorJob(
                name=name,
                spec=spec,
                values=[values[i] for i in own],
                weights=[row[i] for i in own],
                clients=own,
                start=sent,
                before=before,
                means=[means[i] for i in own] if pools and len(own) > 1 else None,  # of one client: its own
                model=output,
            )
            out.append(self._kept(prefix, name, start, stop, self.aggregator.combine(job)))
        return out

    def _slots(self, prefix: str, name: str) -> dict[str, str]:
        """Return the aggregator's own names for its stored tensors of one tensor, each with its name in the file."""
        keys = [key for key in (self.state.entries if self.state else ()) if key.startswith(prefix)]
        own = {key: key.removeprefix(prefix) for key in keys if f"/{key.removeprefix(prefix)}".endswith(f"/{name}")}
        return {slot[: -len(name)].rstrip("/"): key for key, slot in own.items()}

    def _kept(self, prefix: str, name: str, start: int, stop: int, combined: Combined) -> Tensor:
        """Keep a range of the aggregator's own tensors; return the combined one."""
        entry = self.received.files[0].entries[name]
        for slot, value in combined.after.items():
            key = f"{prefix}{slot}/{name}" if slot else f"{prefix}{name}"
            if key not in self.after:
                self.after[key] = torch.empty(entry.shape, dtype=value.dtype)
            self.after[key].view(-1)[start:stop] = value.reshape(-1)
        return combined.value.reshape(-1)

    def _write(self, writer: StateWriter, name: str, value: Tensor) -> None:
        if value.is_floating_point() and not all_finite(value):
            raise UserError(
                "the aggregated model has values that are not finite",
                where=f"aggregation: {name}",
                hint="the server's learning rate may be too large, or the updates have diverged",
            )
        writer.write(name, value)
