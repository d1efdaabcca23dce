"""Keep a file for one writer: an exclusive lock that ends with its process."""

import errno
import sys

if sys.platform != "win32":
    import fcntl

# File systems without locks. There only O_EXCL keeps writers apart: of two that create one file
# the second is still refused, of two that resume one file it is not.
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS}


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open file; False if another holder has it.

    The lock belongs to this opening of the file, so that a second opening in the same process is
    refused as well, and the system frees it when the process ends, however it ends. Where the
    file system knows no locks there is nothing to hold, and the answer is True.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def unlock(fd: int) -> None:
    """Give the lock back, also where a child process still holds a copy of `fd`."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
