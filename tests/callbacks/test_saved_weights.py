"""Which weights a checkpoint holds is known whoever of the callbacks is asked first."""

import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.callbacks.small import Small
from traingen import StepRecorder
from traingen.callbacks.saved_weights import digest_saved, saved_weights
from traingen.observe.moments import digest_parameters


def test_a_state_that_lacks_a_parameter_has_no_digest():
    model = Small()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1)]
    state = dict(model.state_dict())
    assert digest_saved(state, model, optimizers) == [digest_parameters(model.parameters())]
    del state["net.0.bias"]
    assert digest_saved(state, model, optimizers) is None
    assert digest_saved({}, model, optimizers) is None


def test_weights_of_a_checkpoint_are_told_apart_by_what_lightning_does():
    live, averaged = {"w": 1}, {"w": 2}
    swapped = {"state_dict": averaged, "current_model_state": live}
    assert saved_weights(swapped, []) == (live, averaged)
    assert saved_weights({"state_dict": live}, []) == (live, None)
    assert saved_weights({"state_dict": live}, [WeightAveraging()]) == (live, None)  # not set up
    assert saved_weights({"state_dict": live}, [StepRecorder()]) == (live, None)
    average = WeightAveraging()
    average._average_model = AveragedModel(nn.Linear(1, 1))
    assert saved_weights({"state_dict": live}, [average])[1].keys() == {"weight", "bias"}
