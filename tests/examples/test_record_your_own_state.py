"""The code of the how-to on probes runs as it stands, and does what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from examples.timestep_sampler.module import RingDenoiser, ring_loader
from examples.timestep_sampler.probe import TimestepSamplerProbe
from traingen import StepRecorder
from traingen.errors import ConfigError
from traingen.records import UpdateRecord, read_recording

PAGE = Path(__file__).parents[2] / "docs/how-to/record-your-own-state.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


class Cooling(pl.LightningModule):
    """A training with a temperature that is halved at every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.temperature = 0.5

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.temperature /= 2
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_ring(path: Path, probes: list[Any]) -> dict[str, torch.Tensor]:
    """Two epochs of the example, recorded if there are probes; what it ends in."""
    torch.manual_seed(0)
    module = RingDenoiser()
    callbacks = [StepRecorder(path, probes=probes)] if probes else []
    pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=callbacks, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(module, ring_loader())  # fmt: skip
    return module.state_dict() | {"rng": torch.get_rng_state()}


def updates_of(path: Path) -> tuple[UpdateRecord, ...]:
    return tuple(read_recording(path).updates)


def test_the_probe_of_the_page_is_recorded_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=2)
    names: dict[str, Any] = {"model": Cooling(), "data": data}
    for block in blocks("python")[:2]:
        exec(compile(block, str(PAGE), "exec"), names)
    found = [update.user for update in updates_of(Path("runs/cooling"))]
    [shown] = blocks("json")
    assert found[0] == json.loads(shown)
    assert [one["temperature"]["value"] for one in found] == [0.5, 0.25, 0.125]


def test_the_example_of_the_page_comes_to_its_weighted_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = [one for one in blocks("python") if "TimestepSamplerProbe" in one]
    exec(compile(block, str(PAGE), "exec"), {})
    said = re.search(r"by weight from update (\d+) of 16 on", capsys.readouterr().out)
    assert said is not None
    branches = [update.sampler["branch"] for update in updates_of(Path("runs/ring"))]
    first = int(said[1])
    assert branches == ["uniform"] * (first - 1) + ["weighted"] * (17 - first)


def test_a_line_shows_the_sampler_as_its_update_began(tmp_path: Path) -> None:
    train_ring(tmp_path, [TimestepSamplerProbe()])
    filled = [update.sampler["filled"] for update in updates_of(tmp_path)]
    assert filled[0] == [0] * 8
    assert sum(filled[1]) <= 8 < sum(filled[2])
    assert [update.user for update in updates_of(tmp_path)] == [None] * 16


def test_two_trainings_differ_in_the_update_in_which_their_samplers_do(tmp_path: Path) -> None:
    class Skewed(TimestepSamplerProbe):
        """Moves a single loss in the history, by one part in a billion, after five updates."""

        reads = 0

        def read(self, module: torch.nn.Module) -> dict[str, Any]:
            Skewed.reads += 1
            if Skewed.reads == 6:
                module.timesteps.losses.view(-1)[0] += 1e-9
            return super().read(module)

    train_ring(tmp_path / "a", [TimestepSamplerProbe()])
    train_ring(tmp_path / "b", [Skewed()])
    pairs = zip(updates_of(tmp_path / "a"), updates_of(tmp_path / "b"), strict=True)
    assert next(a.update for a, b in pairs if a.sampler != b.sampler) == 6


def test_the_example_ends_in_the_same_bits_with_its_probe(tmp_path: Path) -> None:
    alone = train_ring(tmp_path / "unused", [])
    watched = train_ring(tmp_path / "watched", [TimestepSamplerProbe()])
    assert alone.keys() == watched.keys()
    assert [name for name in alone if not torch.equal(alone[name], watched[name])] == []
    assert not (tmp_path / "unused").exists()


def test_a_probe_that_draws_ends_the_training_with_its_name(tmp_path: Path) -> None:
    class Drawing:
        name = "guess"

        def read(self, module: RingDenoiser) -> Any:
            return module.timesteps.draw(1)[0]

    with pytest.raises(ConfigError, match=r"probe 'guess' \(Drawing\) drew random numbers"):
        train_ring(tmp_path, [Drawing()])
