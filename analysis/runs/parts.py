"""Results of long stages, kept beside a run until it is finished, so that the same command goes on after a stop."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from common.arrays import arrays_of
from common.files import PARTIAL_SUFFIX, atomic_file, read_bytes, read_json, visible, write_json
from common.user_error import UserError

_KEY_FILE = "key.json"
T = TypeVar("T")


class Parts:
    """Arrays of finished stages in a hidden folder beside the run's own, valid for one set of arguments and inputs."""

    def __init__(self, run_folder: Path, key: Mapping[str, Any]) -> None:
        """Open the parts of a run; those of other arguments or inputs are removed.

        Parts lie in `.NAME.parts` next to the run's folder. The key is everything that results depend on, as JSON
        values.

        Raises:
            UserError: a folder of that name was not made for parts.
        """
        self.folder = run_folder.parent / f".{run_folder.name}.parts"
        self._key = orjson.loads(orjson.dumps(key))
        if self.folder.exists() and self._stored_key() != self._key:
            self._refuse_foreign()
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / _KEY_FILE).exists():
            write_json(self.folder / _KEY_FILE, self._key)

    @property
    def there(self) -> list[str]:
        """Names of the finished stages."""
        return [path.stem for path in visible(self.folder, "*.npz")]

    def arrays(self, name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the arrays of a stage: read if it was finished before, else computed and stored."""
        path = self.folder / f"{name}.npz"
        if path.exists():
            stored = self._read(path)
            if stored is not None:
                return stored
        # In the order in memory that a file gives them: sums would differ in their last digits otherwise.
        arrays = {name: np.array(array, order="C") for name, array in compute().items()}
        with atomic_file(path) as file:
            np.savez(file, allow_pickle=False, names=np.array(list(arrays)), **arrays)
        return arrays

    def data(self, name: str, kind: type[T], compute: Callable[[], T]) -> T:
        """Return what a stage finds, a data class of arrays and numbers, as `arrays` does."""
        stored = self.arrays(name, lambda: {field: np.asarray(value) for field, value in vars(compute()).items()})
        return kind(**{field: array if array.ndim else array.item() for field, array in stored.items()})

    def remove(self) -> None:
        """Remove everything: the run is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _refuse_foreign(self) -> None:
        """Refuse to remove a folder without a key, unless a run that was killed had not written any yet."""
        if not (self.folder / _KEY_FILE).exists() and any(
            not path.name.endswith(PARTIAL_SUFFIX) for path in self.folder.iterdir()
        ):
            raise UserError(f"{self.folder} holds other files, and would be removed: move it away")

    def _read(self, path: Path) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file; None if it is damaged, so that its stage is computed again."""
        try:
            content = read_bytes(path)
            return arrays_of(content, arrays_of(content, ["names"])["names"].tolist())
        except (UserError, ValueError):
            return None

    def _stored_key(self) -> object:
        try:
            return read_json(self.folder / _KEY_FILE)
        except UserError:
            return None
