"""Read on where a recording that is being written was last left, record by record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from traingen.errors import RecordingError
from traingen.reading.outline import find_file
from traingen.records import Record, decode_line
from traingen.records.codec import ends_like_line
from traingen.records.order import Order, opens_anew

BLOCK = 1 << 16  # bytes read at once, from the end backwards

_OPENING = b'{"kind":"'  # of every line


class Follower:
    """Gives the records that a file has gained since it was last asked.

    A line is given once it is whole. What a killed writer left of one is passed over as soon as a
    resume has begun the next. A file that was replaced, or cut, is read from its beginning. That
    lines follow one another is checked as the reader does it, as far as that is known where it
    begins with the last of them.

    Args:
        path: a RUN folder or its file; need not exist yet.
        rank: whose file it is.
        lines: how many of the last lines to begin with; None begins at the first.
    """

    replaced: bool  # whether the last `poll` found another file than the one before
    torn: RecordingError | None  # of the line read last, if it is damage unless a resume follows

    def __init__(
        self, path: str | os.PathLike[str], *, rank: int = 0, lines: int | None = None
    ) -> None:
        self._path = Path(path)
        self._rank = rank
        self._lines = lines
        self._inode: int | None = None
        self._offset = 0  # bytes of whole lines read
        self._order = Order()
        self.torn = None
        self.replaced = False

    @property
    def file(self) -> Path:
        """The file that is read."""
        return find_file(self._path, rank=self._rank)

    @property
    def exists(self) -> bool:
        """Whether there is a file yet."""
        return self.file.is_file()

    def poll(self) -> Iterator[Record]:
        """The records that have been completed since the last call; none of a missing file.

        Take them all: what is left of them is given by the next call.

        Raises:
            RecordingError: the file cannot be read, holds a damaged line, or lines are missing,
                doubled or out of order.
        """
        try:
            with self.file.open("rb") as file:
                self._notice(os.fstat(file.fileno()))
                if self._inode is None:
                    self._inode = os.fstat(file.fileno()).st_ino
                    if self._lines is not None:
                        self._offset = find_last_lines(file.fileno(), self._lines)
                        self._order = Order(inside=self._offset > 0)
                file.seek(self._offset)
                yield from self._decode(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RecordingError(f"{self.file}: cannot be read: {error.strerror}.") from error

    def finish(self) -> None:
        """Nothing more is awaited.

        Raises:
            RecordingError: the line read last is damaged, or counts updates that are not there.
        """
        if self.torn is not None:
            raise self.torn
        self._order.finish()

    def _notice(self, status: os.stat_result) -> None:
        """Begin anew if this is another file than before, or shorter than what was read of it."""
        known = self._inode is not None
        self.replaced = known and (status.st_ino != self._inode or status.st_size < self._offset)
        if self.replaced:
            self._inode, self._offset = status.st_ino, 0
            self._order, self.torn = Order(), None

    def _decode(self, lines: Iterator[bytes]) -> Iterator[Record]:
        for line in lines:
            if not line.endswith(b"\n"):
                return  # in the making: it is read again at the next poll
            where = f"{self.file}: at byte {self._offset}"
            self._offset += len(line)
            try:
                record = decode_line(line, where=where)
            except RecordingError as error:
                self._hold(error, torn=_may_be_torn(line) and self._order.begun)
                continue
            if self.torn is not None and not opens_anew(record):
                raise self.torn
            self.torn = None
            self._order.check(record, where=where)
            yield record

    def _hold(self, error: RecordingError, *, torn: bool) -> None:
        """A bad line is no damage if it is torn and a resume follows it."""
        self.torn = self.torn or error
        if not torn:
            raise self.torn


def _may_be_torn(line: bytes) -> bool:
    """Whether `line` is the beginning of one, as a killed writer leaves it."""
    opening = line.rstrip(b"\n")[: len(_OPENING)]
    return _OPENING.startswith(opening) and not ends_like_line(line)


def find_last_lines(fd: int, lines: int) -> int:
    """The byte at which the last `lines` whole lines of an open file begin."""
    end = _end_of_lines(fd, os.fstat(fd).st_size)
    position, found = end, 0
    while position > 0:
        start = max(0, position - BLOCK)
        block = os.pread(fd, position - start, start)
        at = len(block) - (position == end)  # the newline that ends the last line begins none
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == lines:
                return start + at + 1
        position = start
    return 0


def _end_of_lines(fd: int, size: int) -> int:
    """Bytes up to and with the last newline."""
    position = size
    while position > 0:
        start = max(0, position - BLOCK)
        at = os.pread(fd, position - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        position = start
    return 0
