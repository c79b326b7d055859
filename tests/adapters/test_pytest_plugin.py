"""The fixture `norm_doctor`, which pytest loads in this run as in any other, and in a run in a
user's folder.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import forked
from normscope.doctor.diagnose import Diagnosis
from tiny import finish

PROBLEM = "missing-final-norm"
Doctor = Callable[..., Diagnosis]


def encoder(*, final_norm: bool) -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, batch_first=True) for _ in range(3)
    ]
    end = [nn.LayerNorm(16)] if final_norm else []
    return nn.Sequential(nn.Embedding(11, 16), *layers, *end, nn.Linear(16, 11)), (
        torch.arange(10).reshape(2, 5),
    )


def test_a_sound_model_passes_and_its_diagnosis_is_returned(norm_doctor: Doctor) -> None:
    model, inputs = encoder(final_norm=True)
    diagnosis = norm_doctor(model, inputs)
    (stack,) = diagnosis.stacks
    assert (stack.placement, stack.blocks, stack.final_norm) == ("pre-ln", 3, True)
    assert diagnosis.findings == ()
    assert diagnosis.advice is None


def test_a_loss_that_is_given_is_the_one_taken(norm_doctor: Doctor) -> None:
    model, inputs = encoder(final_norm=True)
    diagnosis = norm_doctor(model, inputs, lambda logits: logits.square().mean(), fail_on="error")
    with torch.no_grad():
        wanted = float(model.eval()(*inputs).square().mean())
    assert diagnosis.measured.loss_nats == pytest.approx(wanted, rel=1e-5)


def test_a_finding_fails_the_test_with_what_to_do(norm_doctor: Doctor) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        norm_doctor(*encoder(final_norm=False))
    first, *rest, last = str(failed.value).splitlines()
    assert first == "normscope's doctor finds 1 thing wrong with Sequential"
    assert rest[0].startswith(f"warning: {PROBLEM}")
    assert rest[1].startswith("    ")
    assert last.endswith(f'[tool.normscope.doctor] silence = ["{PROBLEM}"]')


def test_only_findings_as_bad_as_asked_for_fail(norm_doctor: Doctor) -> None:
    found = norm_doctor(*encoder(final_norm=False), fail_on="error").findings
    assert [finding.id for finding in found] == [PROBLEM]
    assert norm_doctor(*encoder(final_norm=False), silenced=(PROBLEM,)).silenced == (PROBLEM,)
    with pytest.raises(ValueError, match="fail_on='critical'; choose one of info, warning, error"):
        norm_doctor(*encoder(final_norm=True), fail_on="critical")


def test_in_a_folder_of_its_own_the_project_silences_rules_and_failures_are_readable(
    tmp_path: Path,
) -> None:
    """Both tests are about the same model; one in a project that silences what is found, one with
    another finding.
    """
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.normscope.doctor]\nsilence = ["{PROBLEM}"]\n[tool.pytest.ini_options]\n',
        encoding="utf-8",
    )
    (tmp_path / "test_model.py").write_text(
        "import torch\n"
        "from test_pytest_plugin import encoder\n\n\n"
        "def test_silenced(norm_doctor):\n"
        f"    assert norm_doctor(*encoder(final_norm=False)).silenced == ('{PROBLEM}',)\n\n\n"
        "def test_dead(norm_doctor):\n"
        "    model, inputs = encoder(final_norm=True)\n"
        "    torch.nn.init.zeros_(model[1].linear2.weight).requires_grad_(False)\n"
        "    torch.nn.init.zeros_(model[1].linear2.bias).requires_grad_(False)\n"
        "    norm_doctor(model, inputs)\n",
        encoding="utf-8",
    )
    _, out, err = finish(forked.call(_pytest, tmp_path))
    assert "1 failed, 1 passed" in out, out + err
    assert "error: dead-sublayer at " in out
    # The user reads what was found, and no code of ours.
    assert "pytest_plugin.py:" not in out


def _pytest(folder: Path) -> None:
    """As `python -m pytest` in a user's folder."""
    os.chdir(folder)
    sys.exit(pytest.main(["-p", "no:cacheprovider", "-o", f"pythonpath={Path(__file__).parent}"]))


def test_pytest_finds_the_plugin_and_it_loads_nothing_heavy() -> None:
    (found,) = entry_points(group="pytest11", name="normscope")
    code = (
        f"import sys, {found.value}; print([name for name in ('torch', 'numpy', 'rich') if name in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
