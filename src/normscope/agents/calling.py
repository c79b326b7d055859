"""A command of ours, run for a program: in a process of its own, whose answer is what it prints.

The model of somebody's is built there, so that what it prints, uses or breaks is not the server's.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.abc import Process

from ..errors import UserError
from ..processes.guard import CodeRun, kept_to
from ..processes.surroundings import interpreter, with_lifeline
from .root import Root

_SAVING_SECONDS = 20.0
"""The seconds that a command that is asked to stop may take to save."""
_COLUMNS = 100
"""The width of an answer, whatever the terminal from which the server was started."""


async def answer(root: Root, words: Sequence[str], *, runs_code: bool = True) -> str:
    """Returns what a command prints, and after it the files that it has run.

    words: of the command line, without `normscope`. runs_code: whether the command is one that may
    run somebody's files, so that the answer says so where it ran none.

    Raises UserError with the command's own line where it ends with an error.
    """
    with TemporaryDirectory(prefix="normscope-") as scratch:
        told = Path(scratch) / "told"
        code, printed, said = await _run(root, words, scratch, told)
        files = CodeRun.read(told)
    if _has_failed(code, printed, said):
        raise UserError(_reason(code, said) + _listed(root, files.ran, " (files run: {})"))
    printed = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    if not runs_code:
        return printed
    ran = _listed(root, files.ran, "\nfiles run: {}") or "\nfiles run: none of yours"
    return printed + ran + _listed(root, files.refused, "\nfiles refused: {}")


async def _run(root: Root, words: Sequence[str], scratch: str, told: Path) -> tuple[int, str, str]:
    """Runs the command; its exit code, standard output and standard error."""
    command = [*interpreter(), "-m", "normscope", *words]
    # What compilers of torch write is run too.
    own = {"TMPDIR": scratch, "NO_COLOR": "1", "COLUMNS": str(_COLUMNS)}
    kept = kept_to(root.folder, Path(scratch), told)
    environment = with_lifeline({**os.environ, **own, **kept})
    process = await anyio.open_process(
        command, cwd=root.folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    printed, said = bytearray(), bytearray()
    try:
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read, process.stdout, printed)
            reading.start_soon(_read, process.stderr, said)
        code = await process.wait()
    finally:
        await _end(process)
    return code, _text(printed), _text(said)


async def _read(stream: anyio.abc.ByteReceiveStream | None, into: bytearray) -> None:
    if stream is not None:
        async for part in stream:
            into += part


async def _end(process: Process) -> None:
    """Asks a command that is still running to stop, waits while it saves, and closes its pipes."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(_SAVING_SECONDS):
                await process.wait()
        await process.aclose()


def _text(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace")


_FAULT = "Traceback (most recent call last)"


def _has_failed(code: int, printed: str, said: str) -> bool:
    """Tells whether a command has no answer. The code 1 is also that of an answer which is bad
    news.
    """
    return code not in (0, 1) or not printed.strip() or _FAULT in said


def _reason(code: int, said: str) -> str:
    """Returns one line that says why a command has no answer."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"it ended with the code {code} and said nothing"
    if _FAULT in said:
        return f"a fault of NormScope's: {last}; the same on the command line says where"
    errors = [line for line in lines if line.startswith("error: ")]
    return errors[-1].removeprefix("error: ") if errors else last


def _listed(root: Root, files: Sequence[str], form: str) -> str:
    """Returns the files in the form's place, from the root where they lie in it; "" for none."""
    shown = []
    for file in map(Path, files):
        inside = file.is_relative_to(root.folder)
        shown.append(str(file.relative_to(root.folder) if inside else file))
    return form.format(", ".join(shown)) if shown else ""
