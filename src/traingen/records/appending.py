"""A file that one sink appends whole lines to, and nobody else."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from traingen.errors import RecordingError
from traingen.records.locks import try_lock, unlock


class Closing:
    """What is closed when the block that it was opened for is left."""

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AppendedFile:
    """Appends lines, one `os.write` each, to a file that is locked while it is open.

    A line that could only be written in part (a full disk) is taken back before the next one and
    at close, so that no two lines are ever glued together. A file that was removed or replaced
    while it is written is noticed at the next line. All trouble is raised as RecordingError.

    A forked child (a data-loader worker) gives up its copy at once: it can neither write to the
    file nor keep it locked.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd: int | None = fd
        self._forked = False
        found = os.fstat(fd)
        self._complete = found.st_size  # bytes of whole lines
        self._begun = 0  # bytes of a line whose write was begun and not seen to end
        self._before = b""  # goes out with the next line
        self._counts_links = found.st_nlink > 0  # some network file systems never do
        _OPEN.add(self)

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> AppendedFile:
        """Make the file, and its folder; with `overwrite` move what is there aside first.

        What is moved aside goes to `<name>.old-1`, `-2`, … and is never deleted; what another
        sink is still writing is not moved. A file with nothing in it is taken as it is: a process
        that was killed before its first line leaves one.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if overwrite:
                _move_aside(path)
        except OSError as error:
            raise RecordingError(f"{path}: cannot be created: {error.strerror}.") from error
        try:
            return cls._own(path, os.O_CREAT | os.O_EXCL)
        except FileExistsError as error:
            empty = cls._own_empty(path)
            if empty is not None:
                return empty
            raise RecordingError(
                f"{path}: a recording needs a new path, and this one exists: choose another, "
                f"or move it aside with --overwrite (overwrite=True)."
            ) from error
        except OSError as error:
            raise RecordingError(f"{path}: cannot be created: {error.strerror}.") from error

    @classmethod
    def reopen(cls, path: Path) -> AppendedFile:
        """Open a file that exists, to append to it."""
        try:
            return cls._own(path, 0)
        except OSError as error:
            raise RecordingError(f"{path}: cannot be opened again: {error.strerror}.") from error

    @classmethod
    def _own_empty(cls, path: Path) -> AppendedFile | None:
        """The file that exists, opened, if there is nothing in it."""
        if not path.is_file() or path.stat().st_size > 0:
            return None
        file = cls._own(path, 0)
        if file._complete > 0:  # somebody has written to it meanwhile, and has left
            file.close()
            return None
        return file

    @classmethod
    def _own(cls, path: Path, flags: int) -> AppendedFile:
        # O_EXCL: of two processes on one path, one is refused. Readable, to look at the last byte.
        fd = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o666)
        try:
            if not try_lock(fd):
                raise _taken(path)
            return cls(path, fd)
        except BaseException:
            os.close(fd)
            raise

    def part_from_torn_tail(self) -> bool:
        """Whether the file ends inside a line; if so, the next line begins with a newline.

        The newline goes out together with that line: a process that ends in between leaves the
        file as it found it.
        """
        fd = self._take_fd()
        torn = self._complete > 0 and os.pread(fd, 1, self._complete - 1) != b"\n"
        self._before = b"\n" if torn else b""
        return torn

    def append(self, line: bytes) -> None:
        """Write `line`, its newline included; it is in the file when this returns."""
        fd = self._take_fd()
        try:
            if self._begun:
                self._take_back(fd)
            data = self._before + line
            self._check_untouched(os.fstat(fd))
            self._begun = len(data)
            _write_all(fd, data)
        except OSError as error:
            raise RecordingError(
                f"{self.path}: cannot be written: {error.strerror}. All lines before are whole."
            ) from error
        self._before = b""  # in this order: Ctrl-C may come between any two of these
        self._complete += len(data)
        self._begun = 0

    def close(self) -> None:
        """Take back a line written in part, free the lock and close; a second call does nothing."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        _OPEN.discard(self)
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, fd)
                stack.callback(unlock, fd)
                if self._begun:
                    self._take_back(fd)
        except OSError as error:  # some network file systems report a full disk only now
            raise RecordingError(
                f"{self.path}: cannot be closed: {error.strerror}. Its last lines may be missing."
            ) from error

    def abandon_after_fork(self) -> None:
        """In a forked child: close this copy and leave file and lock to the parent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._forked = True
            os.close(fd)

    def _check_untouched(self, found: os.stat_result) -> None:
        """Raise if somebody else has removed the file, cut it or written to it."""
        if self._counts_links and found.st_nlink == 0:
            raise RecordingError(
                f"{self.path}: was removed while it was being written: nothing recorded from "
                f"here on would be kept. Leave the folder in place until the run has ended."
            )
        if found.st_size != self._complete:
            raise RecordingError(
                f"{self.path}: must have {self._complete} bytes by now, got {found.st_size}: "
                f"somebody else has cut it or written to it. Keep log rotation away from it."
            )

    def _take_fd(self) -> int:
        if self._fd is not None:
            return self._fd
        if self._forked:
            raise RecordingError(
                f"{self.path}: the sink belongs to the process that opened it, and this is one "
                f"forked from it: open another path here."
            )
        raise RecordingError(f"{self.path}: the sink is closed: write before close().")

    def _take_back(self, fd: int) -> None:
        """Cut off what an interrupted write left, unless the line had made it whole."""
        size = os.fstat(fd).st_size
        if size == self._complete + self._begun:
            self._complete, self._before = size, b""
        elif size > self._complete:
            os.ftruncate(fd, self._complete)
        self._begun = 0


_OPEN: weakref.WeakSet[AppendedFile] = weakref.WeakSet()


def _abandon_all() -> None:
    for file in list(_OPEN):
        file.abandon_after_fork()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_abandon_all)


def _taken(path: Path) -> RecordingError:
    return RecordingError(
        f"{path}: is being written by another recorder: wait until it has ended, or choose "
        f"another path."
    )


def _move_aside(path: Path) -> None:
    """Rename `path`, if it exists, to the first free `<name>.old-<n>`."""
    number = 1
    while os.path.lexists(path):
        _refuse_if_taken(path)
        aside = path.with_name(f"{path.name}.old-{number}")
        try:
            # Reserve the name: a rename would replace a file silently.
            os.close(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            number += 1
            continue
        try:
            os.replace(path, aside)
        except OSError:
            os.unlink(aside)
            raise


def _refuse_if_taken(path: Path) -> None:
    if not path.is_file():  # a dangling link, or what os.replace will refuse itself
        return
    try:
        fd = os.open(path, os.O_RDWR)
    except PermissionError:  # nobody who may not open it can be asked; a rename needs no opening
        return
    try:
        if not try_lock(fd):
            raise _taken(path)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
