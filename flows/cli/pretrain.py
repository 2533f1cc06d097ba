"""``fedscene pretrain``: a backbone trained centrally, for runs to start from."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Overrides, Params, Presets, RunId, effective_settings
from flows.cli.output import console, note, print_json, say, user_errors


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="The weight file, NAME.safetensors; its card is NAME.json.")],
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Epochs in total; default: federation.rounds times train.epochs."),
    ] = None,
    licence: Annotated[str, typer.Option("--licence", help="Licence and source of the images, for the card.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file with another content.")] = False,
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Train a backbone on all images at one place; write it and a card for model.backbone.weights.

    An ordinary run of one client with FedAvg: repeat the command to resume. The settings of method, partition and
    aggregation are not used.
    """
    with user_errors(as_json):
        from flows.cli.progress import Live, counting
        from flows.cli.summary import show_summary
        from flows.pretrain import METHOD, central_settings, check_target
        from flows.pretrain import pretrain as train
        from flows.run.find import checked_id
        from flows.run.inputs import require_weights
        from flows.run.prepare_data import prepare_data

        # The method first: a network that fits FedAvg need not fit the method of a preset
        chosen = effective_settings(params, preset, [*(set_ or ()), f"method.name={METHOD}"])
        settings = central_settings(chosen, epochs)
        run_id = None if run_id is None else checked_id(run_id)
        require_weights(settings)  # fail before any image is read
        with counting(console(as_json), "preparing data") as progress:
            data = prepare_data(settings, progress, note)
        check_target(settings, data, out, force)
        with Live(console(True), settings.federation.rounds) as live:
            found = train(settings, data, out, licence=licence, force=force, run_id=run_id, progress=live)
        if as_json:
            print_json(found.as_dict())
            return
        show_summary(found.summary, as_json)
        say(f"weights: {found.weights}, card: {found.card}")
        say(f"start a run from them: {' '.join(f'--set {shlex.quote(entry)}' for entry in found.overrides)}")
