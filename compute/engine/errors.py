"""What can go wrong with a model, each as its own type; across the wire all of them are the sentence `no_model`.

A request that cannot be (empty prompt, too long, a token outside the vocabulary) is a plain BadInput.
"""

from pathlib import Path

from compute.errors import LabError

ROOT = Path(__file__).resolve().parents[2]


def shown(path: Path) -> str:
    """As the repository has it: a page says this sentence, and where the repository lies is nobody's business there."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


class ModelError(LabError):
    """`reason` says what was found, with the value; `way_out` what the person who set the model up can do."""

    codes = ()  # rebuilt from JSON as the class that owns `no_model`

    def __init__(self, model: object, reason: str, reason_zh: str, way_out: str, way_out_zh: str):
        super().__init__(
            "no_model",
            model=shown(model) if isinstance(model, Path) else str(model),
            reason=reason,
            reason_zh=reason_zh,
            way_out=way_out,
            way_out_zh=way_out_zh,
        )


class ModelMissing(ModelError):
    """The directory, file or registered id is not there."""


class FileCorrupt(ModelError):
    """The file is there and cannot be read as what its name says."""


class TensorWrong(ModelError):
    """The configuration asks for a tensor that the file lacks or has in another shape, or the file has one too many."""


class NotSupported(ModelError):
    """The model may be sound, but this engine does not compute it (architecture, activation, rope, file kind)."""


class SettingWrong(ModelError):
    """A device, a dtype or an entry of models.toml that cannot be."""


class DoesNotFit(ModelError):
    """The weights are larger than the memory that is free: refused before the system runs out of it."""
