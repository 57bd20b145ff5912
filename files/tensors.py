"""Files of torch that hold tensors and plain values: no code is run to read them."""

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from files.reading import open_file


def load_plain(path: str | Path, device: str = "cpu", inside: int = 1) -> Any:
    """Reads a file that `save_plain` wrote; for `inside` see `open_file`.

    Raises:
        Exception: any that torch raises for a damaged file or one with other objects (pickle.UnpicklingError).
    """
    import torch

    with open_file(path, inside=inside) as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as parts:
                unpacked_bytes = sum(part.file_size for part in parts.infolist())
            if unpacked_bytes > os.fstat(file.fileno()).st_size:  # forged, as torch.save does not compress
                raise ValueError("it would grow when it is unpacked")
        file.seek(0)
        return torch.load(file, map_location=device, weights_only=True)


def save_plain(state: Any, file: BinaryIO) -> str:
    """Writes tensors and plain values into an open file; returns the SHA-256 of the written bytes."""
    import torch

    stream = _HashingStream(file)
    try:
        torch.save(state, stream)  # type: ignore[arg-type]  # it calls only `write` and `flush`
    except RuntimeError:
        if stream.error is None:
            raise
        raise stream.error from None
    return stream.sha256.hexdigest()


class _HashingStream:
    """Computes a file's checksum as it is written; keeps the OSError that torch.save turns into a RuntimeError."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(data)
        return written

    def flush(self) -> None:
        self._file.flush()
