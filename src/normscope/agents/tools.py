"""The tools that a program may call, each one command of NormScope's.

What a docstring and the words beside a parameter say is what the program reads of a tool.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from .calling import answer
from .root import Root

_Target = Annotated[
    str,
    Field(
        description="FILE.py:FUNCTION that returns a model or (model, inputs), config.json or a "
        "class such as GPT2Config, a folder with a checkpoint or a run, or a TOML configuration. "
        "Paths are from the server's --root."
    ),
]
_Settings = Annotated[
    list[str],
    Field(description="KEY=VALUE each: of the configuration, or an argument of the function."),
]
_Log = Annotated[
    str,
    Field(
        description="A run folder, trainer_state.json, TensorBoard's, W&B's, mlflow's or "
        "trackio's files (FILE#RUN), a .csv table, lines of JSON, or what a trainer printed."
    ),
]
_Placements = Annotated[
    list[str], Field(description="Names such as pre-ln and post-ln; empty for the usual ones.")
]
_Blocks = Annotated[int, Field(ge=1, description="Number of blocks of the stack.")]
_Width = Annotated[int, Field(ge=1, description="Width of the model.")]
_BatchTokens = Annotated[
    str, Field(description="Tokens of one update, such as 500k: the best rate hangs on them.")
]


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools for the files of one folder."""

    root: Root

    async def diagnose(
        self,
        target: _Target,
        log: Annotated[str, Field(description="The log of its training, as explain_log.")] = "",
        rate: Annotated[float | None, Field(description="The peak learning rate planned.")] = None,
        optimizer: Annotated[str, Field(description="Such as adam or sgd.")] = "",
        batch_tokens: _BatchTokens = "",
        settings: _Settings = [],  # noqa: B006
        learn: Annotated[
            bool, Field(description="Also train a copy for half a minute: can it learn at all?")
        ] = False,
    ) -> str:
        """Find what is wrong with a PyTorch Transformer: placements of its norms, faults with file
        and line, a learning rate. With the log of a training that failed, what to do about it.

        It builds the model and runs it for seconds. Each line is a name and what is said; the line
        `do` comes first, and the last one names the files that were run.
        """
        words = ["doctor", "--brief", *_set(settings)]
        if log:
            words.append(f"--log={self.root.log('log', log)}")
        if rate is not None:
            words.append(f"--rate={rate!r}")
        if learn:
            words.append("--learn")
        if optimizer:
            words.append(f"--optimizer={optimizer}")
        if batch_tokens:
            words.append(f"--batch-tokens={batch_tokens}")
        return await answer(self.root, [*words, "--", self.root.target(target)])

    async def explain_log(
        self,
        log: _Log,
        baseline: Annotated[str, Field(description="The log of a good training of it.")] = "",
        warmup_updates: Annotated[
            int | None, Field(ge=0, description="The warm-up that was meant, in updates.")
        ] = None,
    ) -> str:
        """Explain a training's log without its model: spikes, plateaus and losses that never fell,
        since which update, and the likeliest cause. Runs no code.
        """
        words = ["doctor", "--brief", f"--log={self.root.log('log', log)}"]
        if baseline:
            words.append(f"--baseline={self.root.log('baseline', baseline)}")
        if warmup_updates is not None:
            words.append(f"--warmup-updates={warmup_updates}")
        return await answer(self.root, words, runs_code=False)

    async def predict(
        self,
        placements: _Placements = ["pre-ln", "post-ln"],  # noqa: B006
        blocks: _Blocks = 6,
        width: _Width = 512,
        heads: Annotated[int, Field(ge=1, description="Number of attention heads.")] = 1,
        stack: Literal["encoder", "decoder", "encoder-decoder"] = "encoder",
    ) -> str:
        """Predict the stream and the gradients at initialisation over depth from theory, without a
        model and without running code. Answers in JSON: a list over depth for each curve.
        """
        words = ["predict", "--json", f"--stack={stack}", f"--heads={heads}"]
        words += [f"--blocks={blocks}", f"--width={width}"]
        return await answer(self.root, [*words, "--", *placements], runs_code=False)

    async def choose(
        self,
        placements: _Placements = [],  # noqa: B006
        model: Literal["encoder-only", "decoder-only", "encoder-decoder"] = "decoder-only",
        blocks: _Blocks = 12,
        width: _Width = 768,
        optimizer: Annotated[str, Field(description="Such as adamw or muon.")] = "adamw",
        tokens: Annotated[str, Field(description="Of the whole training, such as 5B.")] = "",
        batch_tokens: _BatchTokens = "",
        evidence: Annotated[bool, Field(description="All of it, in long JSON.")] = False,
    ) -> str:
        """Say which placements, rates and warm-ups the evidence supports for a model that is to be
        trained, and what is not known. Runs no code.
        """
        words = ["choose", f"--model={model}", f"--blocks={blocks}", f"--width={width}"]
        words.append(f"--optimizer={optimizer}")
        if tokens:
            words.append(f"--tokens={tokens}")
        if batch_tokens:
            words.append(f"--batch-tokens={batch_tokens}")
        if evidence:
            words.append("--json")
        return await answer(self.root, [*words, "--", *placements], runs_code=False)

    async def transplant(
        self,
        target: _Target,
        to: Annotated[str, Field(description="The placement, such as pre-ln.")],
        out: Annotated[str, Field(description="Folder to make, with weights and recipe.")],
        weights: Annotated[
            Literal["as-needed", "draw", "keep"],
            Field(description="as-needed keeps those of a model that looks trained."),
        ] = "as-needed",
        settings: _Settings = [],  # noqa: B006
    ) -> str:
        """Put a model of one's own under another placement and write it into a new folder. The
        file that defines the model is left as it is.
        """
        words = ["transplant", *_set(settings), f"--to={to}"]
        words.append(f"--out={self.root.inside('out', out)}")
        if weights != "as-needed":
            words.append(f"--initialise={weights}")
        return await answer(self.root, [*words, "--", self.root.target(target)])

    async def compare(
        self,
        target: Annotated[
            str, Field(description="FILE.py:FUNCTION that builds a model, or CONFIG.toml.")
        ],
        out: Annotated[str, Field(description="Folder for the runs and the report.")],
        placements: _Placements = [],  # noqa: B006
        warmup_updates: Annotated[
            list[int], Field(description="Lengths of warm-up; 0 for none.")
        ] = [],  # noqa: B006
        peak_lr: Annotated[list[float], Field(description="Peak learning rates.")] = [],  # noqa: B006
        seeds: Annotated[int, Field(ge=1, description="Runs of each configuration.")] = 1,
        settings: _Settings = [],  # noqa: B006
        train: Annotated[
            bool, Field(description="Train now, which may take hours; else list the runs.")
        ] = False,
    ) -> str:
        """Train every combination of placements, warm-ups and rates, and compare them. Without
        `train` it writes the configurations and lists the command of each run, and trains nothing.

        A call that is cancelled saves; the same call goes on with it.
        """
        words = ["compare", *_set(settings), f"--out={self.root.inside('out', out)}"]
        words.append(f"--seeds={seeds}")
        for option, values in (
            ("placements", placements),
            ("warmup-updates", list(map(str, warmup_updates))),
            ("peak-lr", list(map(repr, peak_lr))),
        ):
            if values:
                words.append(f"--{option}={','.join(values)}")
        if not train:
            # Files that a configuration names run, as in a training; those of the root alone.
            words += ["--dry-run", "--trust"]
        return await answer(self.root, [*words, "--", self.root.target(target)])


def _set(settings: Sequence[str]) -> list[str]:
    return [f"--set={setting}" for setting in settings]
