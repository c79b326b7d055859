"""Verbs and options that the command line once had, and what to use instead of each."""

from collections.abc import Sequence

from ..errors import UserError

_LADDER = "`normscope compare --peak-lr 3e-4:3e-2:8`, which trains every arm at each of eight rates"
_PAGES = "`python -m normscope_studies.manual docs` in a clone, which writes the manual's pages"
_LABELLED = "--train FILE and --dev FILE, which name the files of rows themselves"
_COLUMNS = "--columns LABEL,FIRST,SECOND, which names all columns in one"
_ONE_PROCESS = "a run is trained by one process, and larger models in a trainer of your own"
_PREDICTED_CHANGE = "`normscope predict pre-ln --update adam`, which tells the change by an update"

REMOVED = {
    # Verbs.
    "convert-placement": "use `normscope export RUN FOLDER`, then `normscope transplant FOLDER "
    "--to PLACEMENT --keep --out OUT`",
    "import": "take the checkpoint as it is: `normscope doctor FOLDER` or `normscope transplant "
    "FOLDER --to PLACEMENT --out OUT`; to train it, load it in a file of yours for `normscope "
    "train FILE.py:build`",
    "re-place": "use `normscope export RUN FOLDER`, then `normscope transplant FOLDER --to "
    "PLACEMENT --keep --out OUT`",
    "tune": f"use {_LADDER}",
    "watch": "use `normscope report FOLDER` at any time, also while runs train",
    # Studies.
    "study amplification-theory": f"use {_PREDICTED_CHANGE}",
    "study flag": "use `normscope doctor CHECKPOINT`, whose rule contradicts-training it tried",
    "study real-text": "use `normscope study figure-3` for gradients and `normscope study "
    "hidden-state` for hidden states",
    "study streams": "use `normscope study converged --set "
    '\'warmups=["pre-ln:0.1","x0-residual:0.1"]\'`, with the placements that you want',
    "study transfer": "use `normscope study rate-transfer`",
    # Options; what is said of `study` holds for every study.
    "compare --trials": f"use {_LADDER}",
    "compare --trials-together": "use --processes, the number of runs at a time",
    "compare --tune": f"use {_LADDER}",
    "study depth --blocks": "use --set blocks=N",
    "study depth --initialisation": "use --set initialisation=NAME",
    "study depth --placements": 'use --set \'placements=["pre-ln","post-ln"]\'',
    "study depth --seeds": "use --set seeds=N",
    "study depth --width": "use --set width=N",
    "doctor --probe": "leave it out: the doctor names a rate without it; to try rates, use "
    f"{_LADDER}",
    "choose --write-docs": f"use {_PAGES}",
    "placements --write-docs": f"use {_PAGES}",
    "finetune --data": f"use {_LABELLED}",
    "finetune --first-column": f"use {_COLUMNS}",
    "finetune --label-column": f"use {_COLUMNS}",
    "finetune --positive": "leave it out: a search goes by accuracy",
    "finetune --second-column": f"use {_COLUMNS}",
    "finetune --set": "use --dropout, --warmup-share or --sequence-length; the rest is as BERT is "
    "fine-tuned",
    "finetune --task": f"use {_LABELLED}",
    "predict --exponents": "use --blocks 64 and then --blocks 1024, and compare the two",
    "predict --placement": "leave it out and name placements alone: `normscope predict pre-ln`",
    "train --devices": f"leave it out: {_ONE_PROCESS}",
    "train --restarts": "leave it out: the same command resumes a run that was stopped",
}
"""The removed commands, as they were typed after `normscope`, each with what to do instead."""


def refuse_removed(verbs: Sequence[str], word: str) -> None:
    """Raise UserError where `word`, a verb or an option, was once there after these verbs.

    verbs: those before it, such as ("study", "lemmas"); what was removed from all verbs of a group
    stands at the group's own name.
    """
    for known in (" ".join([*verbs, word]), " ".join([*verbs[:1], word])):
        if known in REMOVED:
            raise UserError(f"`normscope {known}` was removed; {REMOVED[known]}")
