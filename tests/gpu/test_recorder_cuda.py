"""On a CUDA device: AMP in fp16, fused optimizers, and the first law. Skipped without a device."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import seed_everything

from tests.callbacks.recorded import Recorded, train
from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer, norm_of
from traingen import StepRecorder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step..` before"),
]

ON_CUDA: dict[str, Any] = {"accelerator": "gpu", "devices": 1, "max_epochs": 2}


class Overflows(Small):
    """The loss of one batch, counted over all epochs, is infinite; the optimizer may be fused."""

    def __init__(self, *batches: int, fused: bool = False, dropout: float = 0.0) -> None:
        super().__init__(interval=None, dropout=dropout)
        self.batches, self.fused, self.count = batches, fused, 0
        self.norms: list[float] = []  # of the gradients as Lightning's hook finds them

    def loss(self, batch: Any) -> torch.Tensor:
        self.count += 1
        return super().loss(batch) * (torch.inf if self.count - 1 in self.batches else 1.0)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.norms.append(norm_of(p.grad for p in self.parameters()))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01, fused=self.fused)


def record(path: Any, model: pl.LightningModule, **options: Any) -> Recorded:
    return train(path, model, **ON_CUDA, **options)


@pytest.mark.parametrize("fused", [False, True])
def test_skipped_steps_are_events_and_norms_are_without_the_scale(tmp_path, fused):
    model = Overflows(1, fused=fused)
    done = record(tmp_path, model, precision="16-mixed")
    skips = done.events("skipped_step")
    # torch's first scale may overflow in fp16 on its own; the infinite batch always does
    assert len(done.updates) + len(skips) == done.trainer.global_step == 2 * BATCHES
    assert 2 in [skip["global_step"] for skip in skips]
    for skip in skips:
        assert skip["amp_scale_after"] == skip["amp_scale"] / 2
    scaled = [norm for norm in model.norms if norm == norm and norm != float("inf")]
    scales = [update.amp_scale if fused else 1.0 for update in done.updates]
    expected = [norm / scale for norm, scale in zip(scaled, scales, strict=True)]
    assert [u.grad_norm for u in done.updates] == pytest.approx(expected, rel=1e-4)
    assert done.found == {"SKIPPED": "info"}


def test_full_precision_has_the_numbers_of_the_cpu(tmp_path):
    on_cuda = record(tmp_path / "cuda", Overflows())
    on_cpu = train(tmp_path / "cpu", Overflows(), max_epochs=2)
    for one, other in zip(on_cuda.updates, on_cpu.updates, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-3)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-3)
        assert (one.batch, one.lr) == (other.batch, other.lr)  # the batch is digested on the CPU
    assert on_cuda.found == {}


def trained(callbacks: list[pl.Callback], *, fused: bool) -> dict[str, torch.Tensor]:
    """Parameters, optimizer state and generators at the end of a training with dropout and AMP."""
    seed_everything(7, verbose=False)
    model = Overflows(1, fused=fused, dropout=0.5)
    trainer = make_trainer(
        callbacks, **ON_CUDA, precision="16-mixed", gradient_clip_val=None if fused else 0.5
    )
    trainer.fit(model, make_loader())
    state = trainer.optimizers[0].state_dict()["state"]
    return {
        **{name: p.detach().cpu() for name, p in model.named_parameters()},
        **{f"{n}.{name}": v.cpu() for n, one in state.items() for name, v in one.items()},
        "rng.cpu": torch.get_rng_state(),
        "rng.cuda": torch.cuda.get_rng_state(),
        "scale": torch.tensor(trainer.precision_plugin.scaler.get_scale()),
    }


@pytest.mark.parametrize("fused", [False, True])
def test_training_with_the_recorder_ends_in_the_same_bits(tmp_path, fused):
    everything = {
        "layer_norms": True, "update_ratios": True, "moment_norms": True,
        "digest_parameters": True, "rng": ("python", "numpy", "torch"),
    }  # fmt: skip
    alone = trained([], fused=fused)
    watched = trained([StepRecorder(str(tmp_path), **everything)], fused=fused)
    assert alone.keys() == watched.keys()
    assert [name for name in alone if not torch.equal(alone[name], watched[name])] == []
