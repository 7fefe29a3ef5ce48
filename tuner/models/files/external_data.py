"""Takes the constants that an ONNX file keeps in files beside it into the model.

    python -m tuner.models.files.external_data

The process is confined: it parses the file and says which files it names, then reads
those that its parent opened. The payload is the file, the answer the names as JSON or a
file with its data inside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tuner.models.errors import ModelRefused
from tuner.models.process import ConfinedRequest, serve

if TYPE_CHECKING:
    from tuner.models.files.onnx_file import ModelLimits

_MOST_FILES = 1000
_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """The request has `files`, a descriptor by name, or null to ask for the names."""
    if request["files"] is None:
        return json.dumps(named_files(payload)).encode()
    return embedded(payload, request["files"])


def named_files(content: bytes | memoryview) -> dict[str, str]:
    """The files that a model names, each with the first constant that lies there.

    Raises ModelRefused for what is no model, and for a name that is no path of a file in
    the model's folder.
    """
    from tuner.models.files.onnx_file import LIMITS, parsed  # noqa: PLC0415  # loads onnx

    names: dict[str, str] = {}
    for tensor in _external(parsed(content, LIMITS)):
        names.setdefault(_location(tensor), tensor.name[:60])
    if len(names) > _MOST_FILES:
        raise ModelRefused(f"the model names {len(names)} files, the limit is {_MOST_FILES}")
    return names


def embedded(content: bytes | memoryview, files: Mapping[str, int]) -> bytes:
    """The model with its data inside. `files` are descriptors that may be read.

    Raises ModelRefused naming the constant and the file that is too short or not given.
    """
    from tuner.models.files.onnx_file import LIMITS, parsed  # noqa: PLC0415  # loads onnx

    model, total = parsed(content, LIMITS), len(content)
    for tensor in _external(model):
        nbytes = _nbytes(tensor, LIMITS)
        total += nbytes
        if total > LIMITS.nbytes:
            raise ModelRefused(
                f"the model and the files beside it have more than {LIMITS.nbytes} bytes, the limit"
            )
        data = _read(tensor, nbytes, files)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = data
    return bytes(model.SerializeToString())


def _external(model: Any) -> Iterator[Any]:
    from tuner.models.files.onnx_file import tensors_of  # noqa: PLC0415  # loads onnx

    for body in (model.graph, *model.functions):
        for tensor in tensors_of(body):
            if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
                yield tensor


def _entries(tensor: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _location(tensor: Any) -> str:
    location = _entries(tensor).get("location", "")
    path = PurePosixPath(location)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in location:
        raise _refusal(tensor, "which is no file of the model's folder")
    return location


def _nbytes(tensor: Any, limits: ModelLimits) -> int:
    """Bytes of the elements. Raises ModelRefused for a shape or type that has no size."""
    import onnx  # noqa: PLC0415

    count = prod(tensor.dims)
    if any(extent < 0 for extent in tensor.dims) or count > limits.tensor_bytes:
        raise _refusal(tensor, f"with the shape {list(tensor.dims)[:16]}, which is none")
    try:
        name = onnx.TensorProto.DataType.Name(tensor.data_type)
        itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError, ValueError):
        raise _refusal(tensor, f"with elements of the unknown type {tensor.data_type}") from None
    if name == "STRING":
        raise _refusal(tensor, "with texts, which are not taken")
    bits: int = count * _BITS.get(name, 8 * itemsize)
    return -(-bits // 8)


def _read(tensor: Any, nbytes: int, files: Mapping[str, int]) -> bytes:
    location, entries = _location(tensor), _entries(tensor)
    if location not in files:
        raise _refusal(tensor, "which was not given")
    begin = _number(tensor, entries.get("offset", "0"))
    length = _number(tensor, entries.get("length", str(nbytes)))
    size = os.fstat(files[location]).st_size
    if length != nbytes:
        raise _refusal(tensor, f"with {length} bytes of data; its shape takes {nbytes}")
    if begin + nbytes > size:
        raise _refusal(tensor, f"at bytes {begin} to {begin + nbytes}; the file has {size}")
    pieces = bytearray(nbytes)
    done = 0
    while done < nbytes:
        read = os.preadv(files[location], [memoryview(pieces)[done:]], begin + done)
        if not read:
            raise _refusal(tensor, "which became shorter while it was read")
        done += read
    return bytes(pieces)


def _number(tensor: Any, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise _refusal(tensor, f"at {text[:40]!r}, which is no number of bytes")
    return int(text)


def _refusal(tensor: Any, reason: str) -> ModelRefused:
    location = _entries(tensor).get("location", "")
    return ModelRefused(
        f"constant {tensor.name[:60]!r} lies in the file {location[:80]!r}, {reason}"
    )


if __name__ == "__main__":
    serve(_answer)
