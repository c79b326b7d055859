"""What goes through all entries of a weight is done once, however many ask for it."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from normscope import diagnose
from normscope.doctor.observe import parameters
from normscope.doctor.trace import graph
from normscope.measure.passes import euclidean_norm

IDS = torch.arange(32).view(2, 16) + 4


def small() -> nn.Module:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=32, n_head=4, vocab_size=97))


def test_a_pass_and_all_rules_measure_each_matrix_once(monkeypatch):
    model = small()
    times: dict[str, Counter[tuple[int, torch.Size]]] = {"pass": Counter(), "rules": Counter()}

    def counted(by: str) -> None:
        of = graph if by == "pass" else parameters

        def measured(x: torch.Tensor) -> float:
            times[by][x.data_ptr(), x.shape] += 1
            return euclidean_norm(x)

        monkeypatch.setattr(of, "euclidean_norm", measured)

    counted("pass")
    counted("rules")
    diagnose(model, {"input_ids": IDS, "labels": IDS}, laws=False)
    matrices = [(one.data_ptr(), one.shape) for one in model.parameters() if one.ndim == 2]
    for counts in times.values():
        assert sum(counts[one] for one in matrices) > len(matrices) / 2
        assert max(counts[one] for one in matrices) == 1


@pytest.mark.parametrize("vocabulary", [97, 9])
def test_logits_deviate_by_numpys_mean_variance(vocabulary):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=vocabulary)
    model = GPT2LMHeadModel(config).eval()
    ids = IDS % vocabulary
    with torch.no_grad():
        model.lm_head.weight.add_(3)  # so that the mean is far from 0
        logits = model(ids).logits.double().numpy()
    found = diagnose(model, {"input_ids": ids, "labels": ids}, laws=False).measured
    assert found.logit_deviation == pytest.approx(np.sqrt(logits.var(-1).mean()), rel=1e-5)
