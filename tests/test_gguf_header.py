"""The header of a GGUF file, read without the package, against the package's own writer and reader."""

import pytest
from gguf import GGUFReader, GGUFWriter

from compute.errors import BrokenData
from compute.gguf_header import metadata


PADDING = 32 + 4  # bytes at the end that may be zeros up to the next multiple of 32, and the last number


@pytest.fixture()
def file(tmp_path):
    path = tmp_path / "made.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 250)
    writer.add_int8("a.int8", -3)
    writer.add_uint16("a.uint16", 65_000)
    writer.add_int16("a.int16", -300)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -70_000)
    writer.add_float32("a.float32", 0.5)
    writer.add_uint64("a.uint64", 2**40)
    writer.add_int64("a.int64", -(2**40))
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "苹果 🙂")
    writer.add_array("a.words", ["小", "", "Ġthe"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_type_as_the_package_reads_it(file):
    """Catches: a width or sign taken wrongly, after which every later entry is nonsense."""
    theirs = {name: field.contents() for name, field in GGUFReader(file).fields.items() if not name.startswith("GGUF.")}
    assert metadata(file) == theirs and len(theirs) == 15 and theirs["a.words"] == ["小", "", "Ġthe"]


def test_a_file_that_ends_early_or_is_another_is_refused(file, tmp_path):
    """Catches: half a vocabulary taken for a whole one."""
    whole, short, entries = file.read_bytes(), tmp_path / "short.gguf", metadata(file)
    for cut in range(0, len(whole) - PADDING, 5):
        short.write_bytes(whole[:cut])
        with pytest.raises(BrokenData, match="not a whole GGUF file"):
            metadata(short)
    short.write_bytes(whole + b"tensors")
    assert metadata(short) == entries
    short.write_bytes(b"PK\x03\x04" + whole[4:])
    with pytest.raises(BrokenData):
        metadata(short)
    with pytest.raises(FileNotFoundError):
        metadata(tmp_path / "none.gguf")
