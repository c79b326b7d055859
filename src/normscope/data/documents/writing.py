"""The arrays of a split on their way to the disk; memory holds a part."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ..shards import ShardWriter
from .corpus import stored_types
from .encoding import Encoded


class SplitWriter(ExitStack):
    """Writes one split into a corpus folder, part by part."""

    def __init__(self, folder: Path, name: str, vocabulary_size: int) -> None:
        super().__init__()
        self._tokens, self._sentences, self._documents = (
            self.enter_context(ShardWriter(folder, f"{name}.{kind}", dtype))
            for kind, dtype in stored_types(vocabulary_size).items()
        )
        self._last = -1
        self.documents = self.words = 0
        """So far."""
        for offsets in (self._sentences, self._documents):
            offsets.append([0])

    @property
    def sentences(self) -> int:
        """So far."""
        return self._sentences.written - 1

    @property
    def tokens(self) -> int:
        """So far."""
        return self._tokens.written

    def append(self, part: Encoded) -> None:
        """Add what a part holds; its first document may be the last one of the part before."""
        ends = self.tokens + np.cumsum(part.lengths)
        begins = self.sentences + np.cumsum(part.sentences) - part.sentences
        new = part.numbers != self._last
        # An offset is where one document ends and the next begins; the first, 0, is written.
        self._documents.append(begins[new & (begins > 0)])
        self._tokens.append(part.tokens)
        self._sentences.append(ends)
        self.documents += int(new.sum())
        self.words += int(part.words[0])
        if len(part.numbers):
            self._last = int(part.numbers[-1])

    def end(self) -> None:
        """Write where the last document ends."""
        if self.documents:
            self._documents.append([self.sentences])
