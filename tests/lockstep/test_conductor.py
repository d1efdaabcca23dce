"""Two systems driven side by side: equal ones stay equal, and each fault is named."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

from tests.lockstep.small import PER_EPOCH, UPDATES, Trace, fit, make_network, plain_loop
from traingen.errors import ConfigError, SystemFailed
from traingen.lockstep import (
    Gates,
    LockstepResult,
    LoopSystem,
    NameMap,
    TrainerSystem,
    lockstep,
)
from traingen.lockstep.pair import MODES
from traingen.records import read_recording

NAMES = NameMap(patterns=((r"(\d.*)", r"network.\1"),))


def run(*, original: dict[str, Any] | None = None, **options: Any) -> LockstepResult:
    """The small pair in lockstep; `original` and `package` are options of the two trainings."""
    mine, theirs = original or {}, options.pop("package", {})
    options.setdefault("updates", UPDATES)
    return lockstep(
        LoopSystem(lambda: plain_loop(Trace(), **mine)),
        TrainerSystem(lambda: fit(Trace(), **theirs)),
        name_map=options.pop("name_map", NAMES),
        **options,
    )


class Draw(pl.Callback):
    """Draws one number at a hook."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, lambda *_, **__: torch.rand(1))


class Nudge(pl.Callback):
    """Moves the first weight by one ulp at an update."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if trainer.global_step + 1 == self.at:
            weight = pl_module.network[0].weight.grad
            weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(1e9))


def test_two_implementations_of_one_method_are_equal_bit_for_bit_in_every_mode() -> None:
    result = run()
    assert (result.verdict, result.exit_code, result.cause) == ("pass", 0, None)
    assert list(result.modes) == list(MODES)
    for mode in result.modes.values():
        assert (mode.updates, mode.equal_updates) == (UPDATES, UPDATES)
        assert mode.compared["parameters"] == UPDATES * 6
        assert mode.compared["buffers"] == UPDATES * 3


def test_the_loader_of_the_original_draws_are_repeated_for_the_package() -> None:
    """Without the replay a package with dropout would draw other masks in natural mode."""
    result = run(modes=["natural"])
    assert result.modes["natural"].equal_updates == UPDATES
    assert "random draws within a step: there were none" not in result.not_exercised


def test_validation_that_only_one_system_runs_is_named_at_the_update_after_it() -> None:
    result = run(original={"evaluate": False}, modes=["natural"])
    first = result.modes["natural"].first_divergence
    assert first is not None
    assert (first.update, first.quantity) == (PER_EPOCH + 1, "tail.rng")
    assert run(original={"evaluate": False}, modes=["reseeded"]).verdict == "pass"


@pytest.mark.parametrize(
    ("hook", "modes", "quantity"),
    [
        ("on_train_batch_start", ["synchronized"], "rng"),
        ("on_before_backward", ["synchronized"], "rng"),
        ("on_after_backward", ["reseeded"], "rng"),
        ("on_train_batch_end", ["natural"], "tail.rng"),
    ],
)
def test_an_extra_draw_is_named_wherever_it_happens(hook: str, modes: Any, quantity: str) -> None:
    result = run(package={"callbacks": [Draw(hook)]}, modes=modes, updates=4)
    assert result.exit_code == 1
    first = result.modes[modes[0]].first_divergence
    assert first is not None
    assert first.quantity == quantity
    assert first.path.endswith("torch")


@pytest.mark.parametrize("mode", MODES)
def test_one_ulp_in_one_gradient_is_found_at_its_update_and_name(mode: Any) -> None:
    result = run(package={"callbacks": [Nudge(5)]}, modes=[mode])
    first = result.modes[mode].first_divergence
    assert result.verdict == "fail"
    assert first is not None
    assert (first.update, first.path) == (5, "gradients.network.0.weight")


def test_synchronized_mode_forgets_the_error_and_natural_mode_keeps_it() -> None:
    result = run(package={"callbacks": [Nudge(5)]}, modes=["natural", "synchronized"])
    assert result.modes["natural"].equal_updates == 4
    assert result.modes["synchronized"].equal_updates == UPDATES - 1


def test_a_gate_with_a_limit_lets_that_much_pass_and_no_more() -> None:
    loose = Gates.of_numbers(
        gradients={"rtol": 1e-6, "atol": 1e-9}, optimizer_state={"rtol": 1e-6},
        parameters={"rtol": 1e-6, "atol": 1e-9}, grad_norm={"rtol": 1e-6}, clipping={"rtol": 1e-6},
    )  # fmt: skip
    result = run(package={"callbacks": [Nudge(5)]}, gates=loose, modes=["synchronized"])
    assert result.verdict == "pass"
    earliest = result.modes["synchronized"].earliest_difference
    assert earliest is not None
    assert earliest.update == 5


def test_a_gate_is_asserted_up_to_its_horizon_and_report_only_after_it() -> None:
    everything = dict.fromkeys(
        ("gradients", "grad_norm", "clipping", "optimizer_state", "parameters", "buffers",
         "objective"), 4
    )  # fmt: skip
    result = run(
        package={"callbacks": [Nudge(5)]}, modes=["natural"], horizons={"natural": everything}
    )
    mode = result.modes["natural"]
    assert (result.verdict, mode.first_divergence) == ("pass", None)
    assert mode.report_only_divergence is not None
    assert mode.report_only_divergence.update == 5
    later = dict.fromkeys(everything, 5)
    assert run(
        package={"callbacks": [Nudge(5)]}, modes=["natural"], horizons={"natural": later}
    ).exit_code == 1  # fmt: skip


def test_averaged_weights_that_the_loops_observer_cannot_see_are_no_difference() -> None:
    averaging = EMAWeightAveraging(decay=0.9)
    result = run(package={"callbacks": [averaging]}, modes=["synchronized"])
    assert (result.verdict, result.cause) == ("pass", None)
    assert any("averaged weights" in line for line in result.not_exercised)
    assert int(averaging._average_model.n_averaged) > 0


def test_clipping_left_out_is_told_from_other_gradients() -> None:
    result = run(package={"clip": None}, modes=["synchronized"])
    assert result.cause == "clipping.clipped"
    assert result.findings[0].id == "TG-LOCKSTEP-CLIPPING"


def test_a_package_that_accumulates_asks_for_a_batch_too_many() -> None:
    result = run(package={"accumulate": 2}, modes=["synchronized"])
    assert (result.exit_code, result.cause) == (1, "batch.micro_batches")


def test_a_training_that_is_shorter_than_the_other_fails() -> None:
    result = run(package={"epochs": 1}, modes=["natural"])
    assert result.exit_code == 1
    assert result.findings[0].id == "TG-LOCKSTEP-LENGTH"
    assert f"package ended after {PER_EPOCH} updates" in result.findings[0].measured


def test_two_trainings_that_end_before_the_asked_number_prove_nothing() -> None:
    result = run(modes=["natural"], updates=UPDATES + 5)
    assert (result.verdict, result.exit_code) == ("inconclusive", 2)
    assert f"both systems ended after {UPDATES} of {UPDATES + 5}" in str(
        result.modes["natural"].reason
    )


@pytest.mark.parametrize("side", ["original", "package"])
def test_a_system_that_raises_is_named_with_its_place_and_no_thread_is_left(side: str) -> None:
    result = run(**{side: {"raise_at": 3}}, modes=["natural"])
    mode = result.modes["natural"]
    assert (result.verdict, mode.updates) == ("inconclusive", 2)
    assert f"{side} raised at update 3: ValueError" in str(mode.reason)
    assert "small.py:" in str(mode.reason)
    assert not [t for t in threading.enumerate() if t.name.startswith("traingen-")]


@pytest.mark.parametrize("side", ["original", "package"])
def test_a_system_that_raises_before_anything_was_compared_is_an_error(side: str) -> None:
    with pytest.raises(SystemFailed, match=rf"{side} raised .*: ValueError: .* \(small.py:"):
        run(**{side: {"raise_at": 1}}, modes=["natural"])


def test_a_divergence_that_was_found_stands_when_a_system_raises_later() -> None:
    result = run(package={"eps": 1e-6, "raise_at": 3}, modes=["natural"])
    assert (result.exit_code, result.cause) == (1, "hyper_parameters[0].eps")


def test_an_original_that_ends_early_is_not_blamed_on_the_data() -> None:
    result = run(original={"epochs": 1}, modes=["natural"])
    assert result.findings[0].id == "TG-LOCKSTEP-LENGTH"
    assert f"original ended after {PER_EPOCH} updates" in result.findings[0].measured


def test_equal_accumulation_on_both_sides_is_equal_bit_for_bit() -> None:
    result = run(original={"accumulate": 2}, package={"accumulate": 2}, updates=UPDATES // 2)
    assert result.verdict == "pass"
    assert {m.equal_updates for m in result.modes.values()} == {UPDATES // 2}


def test_the_recordings_and_differences_are_complete_and_readable(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(modes=["reseeded"], out=out, updates=7)
    original = read_recording(out / "reseeded" / "original")
    package = read_recording(out / "reseeded" / "package")
    assert (original.run.system, package.run.system) == ("original", "package")
    assert len(original.updates) == len(package.updates) == 7
    assert original.end is not None
    assert original.end.reason == "stopped"
    lines = (out / "reseeded" / "differences.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == list(range(1, 8))
    assert json.loads(lines[0])["tensors"]["parameters"] == {
        "compared": 6, "equal": 6, "max_absolute": 0.0, "max_path": None,
    }  # fmt: skip


def test_the_differences_say_which_parameter_is_furthest_off(tmp_path: Path) -> None:
    run(package={"eps": 1e-3}, modes=["natural"], out=tmp_path / "out", updates=1)
    line = json.loads((tmp_path / "out/natural/differences.jsonl").read_text())
    assert line["tensors"]["parameters"]["max_absolute"] > 0
    assert line["tensors"]["parameters"]["max_path"].startswith("parameters.network.")
    assert line["differences"][0]["path"].startswith("hyper_parameters")


def test_recordings_of_an_interrupted_run_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(mode: str, update: int) -> None:
        if update == 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(modes=["natural"], out=out, on_update=interrupt)
    assert len(read_recording(out / "natural" / "original").updates) == 3
    assert read_recording(out / "natural" / "package").end is not None
    assert not [t for t in threading.enumerate() if t.name.startswith("traingen-")]


def test_nothing_is_written_when_a_name_is_left_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"'0\.weight' of the original is not mapped"):
        run(name_map=NameMap(exact={"4.weight": "network.4.weight"}), out=out)
    assert not out.exists()


def test_an_existing_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    def never() -> None:
        raise AssertionError("the factory was called")

    with pytest.raises(ConfigError, match="exists already"):
        lockstep(LoopSystem(never), LoopSystem(never), out=tmp_path)


@pytest.mark.parametrize(("count", "refused"), [(0, False), (1, False), (2, True)])
def test_only_one_cuda_device_may_be_visible(
    count: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from traingen.lockstep.run import check_one_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if not refused:
        check_one_device()
        return
    with pytest.raises(ConfigError, match="2 CUDA devices are visible"):
        check_one_device()


def test_a_nan_in_both_losses_proves_nothing() -> None:
    class Poison(pl.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            if trainer.global_step == 2:
                with torch.no_grad():
                    pl_module.network[0].weight.fill_(float("nan"))

    poisoned: list[Any] = []

    def poison(update: int) -> None:
        if update == 2:
            with torch.no_grad():
                poisoned[-1].models[-1][0].weight.fill_(float("nan"))

    def original() -> None:
        poisoned.append(Trace())
        plain_loop(poisoned[-1], on_update=poison)

    result = lockstep(
        LoopSystem(original),
        TrainerSystem(lambda: fit(Trace(), callbacks=[Poison()])),
        name_map=NAMES,
        modes=["natural"],
        updates=UPDATES,
    )
    assert result.verdict == "inconclusive"
    assert "not finite at update 3" in str(result.modes["natural"].reason)


def own_batches(*, extra: int) -> None:
    """A loop without a DataLoader, so that nothing tells where to reseed."""
    model = make_network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(4):
        torch.rand(extra)
        x, y = torch.rand(4, 5), torch.rand(4, 1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize(("extra", "verdict"), [(0, "pass"), (3, "inconclusive")])
def test_draws_that_could_not_be_reseeded_prove_nothing_where_they_differ(
    extra: int, verdict: str
) -> None:
    result = lockstep(
        LoopSystem(lambda: own_batches(extra=0)),
        LoopSystem(lambda: own_batches(extra=extra), name="package"),
        gates=Gates.of_numbers(
            **{
                name: {"report_only": bool(extra)}
                for name in ("objective", "gradients", "grad_norm", "clipping", "buffers",
                             "optimizer_state", "parameters")
            }
        ),
        modes=["reseeded"],
        updates=4,
    )  # fmt: skip
    assert result.verdict == verdict
    if extra:
        assert "could not be reseeded" in str(result.modes["reseeded"].reason)
