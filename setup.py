"""What pyproject.toml cannot say: which version a build is of, and that two builds of a commit have
the same bytes.

A tag `vX.Y.Z` of the commit names the version, and `__version__` in what is built says the same.
Without one, and outside of a repository of our own, the version is the `__version__` that stands in
the source.
"""

import gzip
import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
INIT = "normscope/__init__.py"
WRITTEN = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def git(*words: str) -> str:
    """What git says of this folder; "" where it says nothing, or is not there."""
    try:
        return subprocess.run(
            ["git", *words], cwd=HERE, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def version() -> str:
    # A source distribution may lie unpacked in somebody else's repository, whose tags say nothing
    # of us.
    ours = git("rev-parse", "--show-prefix") == "" and (HERE / ".git").exists()
    tag = git("describe", "--exact-match", "--tags", "--match", "v[0-9]*") if ours else ""
    written = WRITTEN.search((HERE / "src" / INIT).read_text(encoding="utf-8"))
    return tag.removeprefix("v") or (written[1] if written else "0")


def write_version(file: Path, version: str) -> None:
    """Put it into a copy of our file. The copy may be a second name of the file itself, which is
    left as it is.
    """
    text = WRITTEN.sub(f'__version__ = "{version}"', file.read_text(encoding="utf-8"))
    file.unlink()
    file.write_text(text, encoding="utf-8")


class Built(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_version(Path(self.build_lib, INIT), self.distribution.get_version())


class Packed(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_version(Path(base_dir, "src", INIT), self.distribution.get_version())

    def make_archive(self, *given: object, **options: object) -> str:
        """The usual archive with its members in order, of nobody, and as old as SOURCE_DATE_EPOCH
        says.
        """
        made = Path(super().make_archive(*given, **options))
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None:
            return str(made)
        same = io.BytesIO()
        with (
            tarfile.open(made) as found,
            tarfile.open(fileobj=same, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for member in sorted(found.getmembers(), key=lambda one: one.name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = (
                    int(epoch),
                    0,
                    0,
                    "",
                    "",
                )
                member.mode, member.pax_headers = (
                    (0o755 if member.isdir() or member.mode & 0o100 else 0o644),
                    {},
                )
                archive.addfile(member, found.extractfile(member) if member.isfile() else None)
        made.write_bytes(gzip.compress(same.getvalue(), mtime=int(epoch)))
        return str(made)


os.umask(0o022)  # a wheel holds the modes of its files
setup(version=version(), cmdclass={"build_py": Built, "sdist": Packed})
