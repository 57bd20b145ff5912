import math

import pytest
import torch

from agent import losses
from agent.schedule import Cosine, Exponential, Linear
from agent.temperature import ExponentialTemperature, FixedTemperature, LearnedTemperature


@pytest.mark.parametrize(
    ("form", "gradient"),
    [
        ("exp", 0.5 * -2.0),  # d/d log alpha of alpha * error
        ("log", -2.0),  # d/d log alpha of log alpha * error
        ("direct", -2.0),  # d/d alpha of alpha * error
    ],
)
def test_what_is_learned_and_what_multiplies(form: str, gradient: float) -> None:
    temperature = LearnedTemperature(0.5, form)  # type: ignore[arg-type]
    assert temperature().item() == pytest.approx(0.5)
    log_prob = torch.tensor([[3.0]])  # entropy -3, target -1: the error is -2
    loss = losses.temperature_loss(temperature.multiplier(), -log_prob.mean(), -1.0)
    assert torch.autograd.grad(loss, temperature.parameter)[0].item() == pytest.approx(gradient)
    if form == "direct":
        with torch.no_grad():
            temperature.parameter.sub_(1.0)
        temperature.after_step()
        assert temperature().item() == 0.0


def test_fixed_is_the_number_itself_and_exponential_falls_from_start_to_final() -> None:
    fixed, falling = FixedTemperature(0.2), ExponentialTemperature(1.0, final=0.01, decay=35_000)
    assert list(fixed.parameters()) == [] and falling().item() == 1.0
    for temperature in (fixed, falling):
        temperature.set_step(35_000)
    assert (fixed().item(), falling().item()) == pytest.approx((0.2, 0.01 + 0.99 / math.e))


def test_schedules() -> None:
    assert [Linear(1, 0, 10)(step) for step in (0, 5, 10, 99)] == [1, 0.5, 0, 0]
    cosine = [Cosine(3.0, 1.0, 12)(step) for step in (0, 3, 4, 6, 8, 12, 99)]
    assert cosine == pytest.approx([3.0, 2 + math.sqrt(0.5), 2.5, 2.0, 1.5, 1.0, 1.0])
    assert Exponential(3, 1, 2)(2) == pytest.approx(1 + 2 / math.e)
