"""Recordings against the functions they were made from."""

import gc
import weakref
from typing import Any

import pytest
import torch

from agent.execution.tracing import CannotTraceError, TracedByShape, trace


def test_a_recording_does_the_same_on_new_inputs_and_on_tensors_that_stay() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    moments = [torch.zeros(2), torch.zeros(2)]

    def function(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        (gradient,) = torch.autograd.grad((weight * inputs[0]).square().sum(), [weight])
        torch._foreach_add_(moments, [gradient, 2 * gradient])
        with torch.no_grad():
            weight.sub_(gradient, alpha=0.5)
        low, high = inputs[0].sort().values.split(1)
        return [gradient, low + 10 * high]

    expected_weight = 1 - 0.5 * 2 * 9, 2 - 0.5 * 4 * 1
    result, again = trace(function, [torch.tensor([3.0, 1.0])])
    assert [r.tolist() for r in result] == [[18.0, 4.0], [31.0]]
    assert weight.tolist() == list(expected_weight)  # it ran, once
    assert moments[1].tolist() == [36.0, 8.0]

    result = again([torch.tensor([1.0, 2.0])])
    gradient = [2 * expected_weight[0], 8 * expected_weight[1]]
    assert [r.tolist() for r in result] == [gradient, [21.0]]
    assert not any(r.requires_grad for r in result)
    assert weight.tolist() == [w - 0.5 * g for w, g in zip(expected_weight, gradient, strict=True)]
    assert moments[1].tolist() == [36.0 + 2 * gradient[0], 8.0 + 2 * gradient[1]]


@pytest.mark.parametrize(
    "look",
    [lambda x, kept: kept.item(), lambda x, kept: float(x.sum()), lambda x, kept: 1 if x.sum() > 0 else 2,
     lambda x, kept: x[x > 0].mean()],
    ids=["item", "float", "branch", "mask"],
)  # fmt: skip
def test_what_python_learns_from_a_tensor_is_not_recorded(look: Any) -> None:
    kept, steps = torch.ones(()), torch.zeros(())

    def function(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = inputs[0] * look(inputs[0], kept)
        steps.add_(1)
        return [found]

    with pytest.raises(CannotTraceError, match=r"aten::(_local_scalar_dense|index)"):
        trace(function, [torch.ones(3)])
    assert steps == 1  # it ran to its end, once


def test_a_change_that_would_be_left_out_is_an_error() -> None:
    constant = torch.zeros(1)
    with pytest.raises(CannotTraceError, match="aten::_foreach_add_"):  # a list that the program builds itself
        trace(lambda inputs: [torch._foreach_add_([constant, 2 * inputs[0]], 1.0), inputs[0]][1:], [torch.ones(1)])


def test_each_shape_has_a_recording_and_what_has_none_runs_as_it_is() -> None:
    runs: list[int] = []

    def twice(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        runs.append(len(inputs[0]))
        return [2 * inputs[0], inputs[0].mean(0).expand(len(inputs[0]))]

    def signs(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [inputs[0] * (1 if inputs[0].sum() > 0 else -1)]

    traced, eager = TracedByShape(twice), TracedByShape(signs)
    for x in (torch.tensor([1.0, 3.0]), torch.ones(3), torch.tensor([2.0, 6.0]), -torch.ones(3)):
        assert [result.tolist() for result in traced([x])] == [(2 * x).tolist(), [x.mean().item()] * len(x)]
        assert (eager([x])[0].sum() > 0).item()
    assert runs == [2, 3] and (traced.num_traced, eager.num_traced) == (2, 0)


def test_a_recording_keeps_nothing_that_is_not_in_use() -> None:
    kept = [torch.ones(3)]
    _, again = trace(lambda inputs: [inputs[0] * kept[0]], [torch.ones(3)])
    assert again([torch.ones(3)])[0].tolist() == [1, 1, 1]
    followed = weakref.ref(kept.pop())
    del again
    gc.collect()
    assert followed() is None
