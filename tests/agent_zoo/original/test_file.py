"""Checkpoints of the original are read exactly; hostile ones run nothing, and take neither time nor memory."""

import hashlib
import io
import os
import pickle
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agent_zoo.original.file import OriginalFile, newest_model, read_original
from tests.command import assert_refuses, python
from tests.fuzz import limited
from tests.original_files import (
    ORDERED,
    Call,
    Code,
    Name,
    Persistent,
    archive,
    call,
    code,
    module,
    parameter,
    pickled,
    saved_network,
    saved_tensors,
    storage,
    tensor,
)

FIXTURES = Path(__file__).parents[4] / "shared" / "original"
FOUR = np.arange(4, dtype=np.float32).tobytes()


class Wrapper(nn.Module):
    """As nested as the original's: a network and a memory, and buffers of which one is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Conv2d(2, 3, 3), nn.LayerNorm(5), nn.Embedding(7, 2))
        self.recurrent = nn.LSTM(4, 4, num_layers=2)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("left_out", torch.ones(2), persistent=False)
        self.scale = torch.ones(1)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def read(path: Path) -> OriginalFile:
    with limited():
        return read_original(path)


def refused(path: Path) -> str:
    return assert_refuses([str(path)], read, path)


def check_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_whole_network_gives_its_state_dict(tmp_path: Path) -> None:
    network = Wrapper()
    torch.save(network, tmp_path / "a.pt")
    original = read(tmp_path / "a.pt")
    check_equal(original.tensors, network.state_dict())
    assert "left_out" not in original.tensors and list(original.tensors) == list(network.state_dict())
    assert original.classes[0] == f"{__name__}.Wrapper" and "torch.nn.modules.rnn.LSTM" in original.classes
    assert original.sha256 == hashlib.sha256((tmp_path / "a.pt").read_bytes()).hexdigest()


@pytest.mark.parametrize("inside", [lambda state: state, lambda state: {"step": 3, "model": state}])
def test_a_state_dict_is_read(tmp_path: Path, inside: Callable[[Any], Any]) -> None:
    network = Wrapper()
    torch.save(inside(network.state_dict()), tmp_path / "a.pt")
    original = read(tmp_path / "a.pt")
    check_equal(original.tensors, network.state_dict())
    assert original.classes == () and original.steps is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {"a": torch.randn(3, 5).to(dtype), "b": torch.randn(4).to(dtype)[::2]}
    torch.save(state, tmp_path / "a.pt")
    check_equal(read(tmp_path / "a.pt").tensors, {name: values.float() for name, values in state.items()})


def test_shared_parts_have_both_names_and_views_keep_their_place(tmp_path: Path) -> None:
    network = nn.ModuleDict({"a": nn.Linear(3, 3)})
    network["b"] = network["a"]
    torch.save(network, tmp_path / "tied.pt")
    check_equal(read(tmp_path / "tied.pt").tensors, network.state_dict())
    whole = torch.arange(24.0).reshape(4, 6)
    views = {"row": whole[2], "part": whole[1:3, 2:4], "transposed": whole.T, "none": whole[:0], "scalar": whole[3, 5]}
    torch.save(views, tmp_path / "views.pt")
    check_equal(read(tmp_path / "views.pt").tensors, views)


@pytest.mark.parametrize("network", [nn.DataParallel(Wrapper()), nn.ModuleDict({"_orig_mod": Wrapper()})])
def test_wrappers_of_torch_leave_no_trace_in_names(tmp_path: Path, network: nn.Module) -> None:
    torch.save(network, tmp_path / "a.pt")
    assert read(tmp_path / "a.pt").tensors.keys() == Wrapper().state_dict().keys()


def test_classes_that_do_not_exist_here_and_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    weights = {"policy.policy.critic.weight": np.ones((2, 3)), "policy.recurrent.bias": np.arange(3.0)}
    content = saved_network(weights, wrapper="no.such.Wrapper", inner="agent_zoo.takeru.policy.NoSuchClass")
    original = read(write(tmp_path / "a.pt", content))
    check_equal(original.tensors, {name: torch.tensor(values).float() for name, values in weights.items()})
    assert original.classes[:2] == ("no.such.Wrapper", "agent_zoo.takeru.policy.NoSuchClass")
    assert original.strangers == ("no.such.Wrapper",)
    on_gpu = {"a": tensor(storage("0", 4, location="cuda:0"), 4)}
    path = write(tmp_path / "b.pt", archive(pickled(on_gpu), {"0": FOUR}))
    assert read(path).tensors["a"].tolist() == [0, 1, 2, 3]


def run_folder(folder: Path, state: Any) -> Path:
    records, storages = saved_tensors({"a": np.ones(2)})
    write(folder / "trainer_state.pt", archive(pickled(state), root="trainer_state"))
    write(folder / "model_000002.pt", archive(pickled(records), storages))
    return write(folder / "model_000012.pt", archive(pickled(records), storages))


def test_the_trainers_state_tells_the_agent_steps_and_a_hostile_one_runs_nothing(tmp_path: Path, canary: Path) -> None:
    path = run_folder(tmp_path, {"agent_step": 2176, "model_name": "model_000012.pt", "update": 1})
    assert read(path).steps == 2176 and newest_model(tmp_path) == path
    other = read(tmp_path / "model_000002.pt")
    assert other.steps is None and "of another checkpoint" in other.unknown[0]
    (tmp_path / "none").mkdir()
    assert_refuses(r"there is no checkpoint \(model_NUMBER.pt\) in", newest_model, tmp_path / "none")
    original = read(run_folder(tmp_path, bomb(canary)))
    assert original.steps is None and "of another checkpoint" in original.unknown[0]


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the original's checkpoints are not in the repository")
def test_the_run_folder_of_the_original_tells_the_agent_steps(tmp_path: Path) -> None:
    (example,) = (FIXTURES / "run_folder_example").iterdir()
    shutil.copy(example / "trainer_state.pt", tmp_path)
    shutil.copy(FIXTURES / "policies" / "takeru_small.pt", tmp_path / "model_000001.pt")
    assert read(newest_model(tmp_path)).steps == 2176


@pytest.mark.parametrize("steps", [-1, True, "3", 1 << 70, call("os", "getpid")])
def test_a_strange_number_of_agent_steps_is_unknown(tmp_path: Path, steps: Any) -> None:
    original = read(run_folder(tmp_path, {"agent_step": steps, "model_name": "model_000012.pt"}))
    assert original.steps is None and original.unknown[0].startswith("agent-steps (")


# Hostile files: each would make the canary if anything in it ran.


def bomb(canary: Path, **more: Any) -> Call:
    return Call(Name("posix", "mkdir"), (str(canary),), **more)


def network(**changes: Any) -> Call:
    return module("pufferlib.Policy", {"a": parameter(tensor(storage("0", 4), 4))}, **changes)


def reduced(of: Any) -> bytes:
    """What Python itself writes of an object that has something called."""

    class Reduces:
        def __reduce__(self) -> Any:
            return of

    return pickle.dumps(Reduces(), protocol=4)


RUNNING: dict[str, Callable[[Path], bytes]] = {
    "the whole file": lambda c: pickled(bomb(c)),
    "by Python": lambda c: reduced((os.mkdir, (str(c),))),
    "exec": lambda c: pickled(call("builtins", "exec", f"import os; os.mkdir({str(c)!r})")),
    "a parameter": lambda c: pickled(module("a.B", {"a": bomb(c)})),
    "a parameter's tensor": lambda c: pickled(module("a.B", {"a": parameter(bomb(c))})),
    "a buffer": lambda c: pickled(network(_buffers={"a": bomb(c)})),
    "all parameters": lambda c: pickled(network(_parameters=bomb(c))),
    "all modules": lambda c: pickled(network(_modules=bomb(c))),
    "a module": lambda c: pickled(module("a.B", modules={"a": bomb(c)})),
    "a module with a state": lambda c: pickled(bomb(c, state={"_modules": {}, "_parameters": {}})),
    "a value of a state dict": lambda c: pickled({"a": tensor(storage("0", 4), 4), "b": bomb(c)}),
    "a key of a state dict": lambda c: pickled(Call(Name(*ORDERED), items={bomb(c): tensor(storage("0", 4), 4)})),
    "a storage": lambda c: pickled({"a": tensor(bomb(c), 4)}),
    "a storage's name": lambda c: pickled({"a": tensor(storage(bomb(c), 4), 4)}),
    "a storage's length": lambda c: pickled({"a": tensor(storage("0", bomb(c)), 4)}),
    "a persistent id": lambda c: pickled({"a": tensor(Persistent(bomb(c)), 4)}),
    "a shape": lambda c: pickled({"a": tensor(storage("0", 4), bomb(c), stride=(1,))}),
    "an offset": lambda c: pickled({"a": tensor(storage("0", 4), 4, offset=bomb(c))}),
    "strides": lambda c: pickled({"a": tensor(storage("0", 4), 4, stride=bomb(c))}),
    "computed": lambda c: pickled(
        Call(call("builtins", "getattr", call("builtins", "__import__", "os"), "mkdir"), (str(c),))
    ),
    "OBJ": lambda c: pickled(Code(b"(" + code(Name("os", "mkdir")) + code(str(c)) + b"o")),
    "INST": lambda c: pickled(Code(b"(" + code(str(c)) + b"ios\nmkdir\n")),
    "NEWOBJ": lambda c: pickled(bomb(c, operation=b"\x81")),
    "NEWOBJ_EX": lambda c: pickled(Code(code(Name("os", "mkdir")) + code((str(c),)) + code({}) + b"\x92")),
    "STACK_GLOBAL": lambda c: pickled(Code(code("os") + code("mkdir") + b"\x93" + code((str(c),)) + b"R")),
    "torch's own reader": lambda c: pickled(call("torch.serialization", "load", str(c))),
    "an import": lambda c: pickled(call("canary_module", "thing")),
    "the pickle of a legacy file": lambda c: b"\x80\x02" + code(bomb(c)) + b".",
    "a method of a file": lambda c: pickled(Call(Name("pathlib", "Path.mkdir"), (call("pathlib", "Path", str(c)),))),
}
"""What stands where in a file that would run something."""

INERT: dict[str, Callable[[Path], bytes]] = {
    "an attribute": lambda c: pickled(network(scale=bomb(c))),
    "a hook": lambda c: pickled(network(_forward_hooks=Call(Name(*ORDERED), items={0: bomb(c)}))),
    "a tensor's hooks": lambda c: pickled(
        {"a": call("torch._utils", "_rebuild_tensor_v2", storage("0", 4), 0, (4,), (1,), False, bomb(c))}
    ),
    "names of buffers": lambda c: pickled(network(_non_persistent_buffers_set=bomb(c))),
    "a device": lambda c: pickled({"a": tensor(storage("0", 4, location=bomb(c)), 4)}),
    "something thrown away": lambda c: pickled(Code(code(bomb(c)) + b"0" + code(network()))),
    "beside the network": lambda c: pickled({"model": network(), "more": bomb(c)}),
}
"""What stands beside the tensors, which are read."""


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that hostile files make; nothing has made it in the end, and nothing was imported."""
    path = tmp_path / "canary"
    (tmp_path / "canary_module.py").write_text(f"import os; os.mkdir({str(path)!r})\nthing = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    assert not path.exists()


@pytest.mark.parametrize("where", RUNNING)
def test_nothing_runs(canary: Path, tmp_path: Path, where: str) -> None:
    content = RUNNING[where](canary)
    legacy = "legacy" in where
    message = refused(write(tmp_path / "a.pt", content if legacy else archive(content, {"0": FOUR})))
    assert "bare pickle" in message if legacy else "cannot be imported: " in message


@pytest.mark.parametrize("where", INERT)
def test_what_stands_beside_the_tensors_stays_inert(canary: Path, tmp_path: Path, where: str) -> None:
    original = read(write(tmp_path / "a.pt", archive(INERT[where](canary), {"0": FOUR})))
    assert original.tensors["a"].tolist() == [0, 1, 2, 3] and original.strangers == ("posix.mkdir",)


@pytest.mark.parametrize("where", ["the whole file", "by Python", "exec", "computed", "OBJ", "INST", "STACK_GLOBAL"])
def test_the_canary_sings_where_pickles_run(tmp_path: Path, where: str) -> None:
    pickle.loads(RUNNING[where](tmp_path / "canary"))  # noqa: S301 (made above)
    assert (tmp_path / "canary").is_dir()


WATCHED = """
import sys
from pathlib import Path
from agent_zoo.original.file import read_original
from common.user_error import UserError

seen = []

def read(path):
    try:
        read_original(path)
    except UserError:
        pass

paths = sorted(Path(sys.argv[1]).glob("*.pt"))
read(paths[0])  # imports what torch imports late
sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments)[:80])))
for path in paths:
    read(path)
print(len(paths), {event for event in seen if event[0] != "open"}, {name for name, _ in seen})
"""


def test_python_itself_sees_nothing_but_files_being_opened(canary: Path, tmp_path: Path) -> None:
    """Python reports imports, processes, compiled code, changes of files and names that a pickle looks up."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, content in enumerate([*RUNNING.values(), *INERT.values()]):
        write(folder / f"{number:03d}.pt", archive(content(canary), {"0": FOUR}))
    assert python("-c", WATCHED, folder).stdout == f"{len(RUNNING) + len(INERT)} set() {{'open'}}\n"


# Files that claim much: each must be refused, or read, at once.


def shared(times: int) -> Call:
    """A module that holds the same one twice, which does so too, and so on."""
    doubled = code(network())
    for number in range(times):
        memo = b"r" + struct.pack("<I", number)
        again = Code(b"j" + struct.pack("<I", number))
        doubled = code(module("a.B", modules={"a": Code(doubled + memo), "b": again}))
    return Call(Name("collections", "OrderedDict"), items={"model": Code(doubled)})


def inside_itself() -> Call:
    """A module that holds the modules which the memo has as its first value."""
    return module("a.B", modules=Code(b"h\x00"))


def sharing_parameters() -> Call:
    """A module whose hundred modules all have the same two hundred parameters."""
    parameters = Code(code({f"p{number}": 1 for number in range(200)}) + b"q\x00")
    modules = {str(number): module("a.B", parameters=Code(b"h\x00") if number else parameters) for number in range(100)}
    return module("a.B", modules=modules)


def claimed_size(size: int) -> bytes:
    """An archive whose directory says that a storage is larger than the file."""
    content = archive(pickled({"a": tensor(storage("0", size // 4), size // 4)}), {"0": FOUR})
    start = content.rindex(b"PK\x01\x02")
    return content[: start + 20] + struct.pack("<II", size, size) + content[start + 28 :]


def compressed() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", pickled({"a": tensor(storage("0", 1 << 28), 1 << 28)}))
        file.writestr("a/data/0", bytes(1 << 26))
    return content.getvalue()


def overlapping() -> bytes:
    """An archive with a thousand entries that are all the same bytes."""
    content = archive(pickled({"a": tensor(storage("0", 1 << 18), 1 << 18)}), {"0": bytes(1 << 20)})
    start = content.index(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    last = content[content.rindex(b"PK\x01\x02") : end]
    more = b"".join(last[:-3] + b"%03d" % number for number in range(1000))
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1003, 1003, end - start + len(more), start, 0)
    return content[:end] + more + tail


def many_entries() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for number in range(20_000):
            file.writestr(f"a/{number}", b"")
    return content.getvalue()


def twice() -> bytes:
    content = archive(pickled({"a": tensor(storage("0", 4), 4)}), {"0": FOUR, "1": FOUR})
    return content.replace(b"/data/1", b"/data/0")


def one(where: Any, *size: Any, **more: Any) -> bytes:
    return archive(pickled({"a": tensor(where, *size, **more)}), {"0": FOUR})


CLAIMS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a module shared 2^30 times": (lambda: archive(pickled(shared(30)), {"0": FOUR}), "more than 4,096 parts"),
    "modules that share their parameters": (lambda: archive(pickled(sharing_parameters())), "more than 16,384 tensors"),
    "a module inside itself": (
        lambda: archive(pickled(module("a.B", modules=Code(b"}q\x00" + code("a") + code(inside_itself()) + b"s")))),
        "nested more than 64 deep",
    ),
    "a storage of terabytes": (lambda: one(storage("0", 1 << 39), 1 << 39), "more numbers than the file"),
    "a long storage of a small tensor": (lambda: one(storage("0", 1 << 39), 4), "should have"),
    "a number of bytes that no file has": (lambda: claimed_size(0xFFFFFFF0), "overlap|should have|damaged"),
    "an offset beyond its storage": (lambda: one(storage("0", 4), 4, offset=1), "beyond its storage"),
    "strides beyond the storage": (lambda: one(storage("0", 4), 2, 2, stride=(3, 1)), "beyond its storage"),
    "a negative offset": (lambda: one(storage("0", 4), 1, offset=-1), "whole numbers from 0"),
    "a shape of one number": (lambda: one(storage("0", 4), 1 << 38, stride=(0,)), "more numbers than the file"),
    "a shape of a huge number": (lambda: one(storage("0", 4), 1 << 4000, stride=(1,)), "whole numbers from 0"),
    "a number of a million digits": (lambda: archive(pickled(1 << 4_000_000)), "bits"),
    "other numbers": (lambda: one(storage("0", 2, "ComplexDoubleStorage"), 1), "torch.ComplexDoubleStorage"),
    "no storage": (lambda: one(storage("1", 4), 4), "'1' is missing"),
    "no tensors": (lambda: archive(pickled({"a": 1})), "it holds other values, no network"),
    "two networks": (
        lambda: archive(pickled({"a": network(), "b": network()}), {"0": FOUR}), "several networks \\(a, b\\)",
    ),
    "compressed": (compressed, "compressed"),
    "entries on top of each other": (overlapping, "overlap"),
    "20,000 entries": (many_entries, "more than 16,384 entries"),
    "an entry twice": (twice, "twice"),
    "lists in lists": (lambda: archive(pickled(Code(b"](" * 150_000 + b"N" + b"e" * 150_000))), "no network"),
    "a deep tuple as key": (
        lambda: archive(pickled(Code(b"}(" + b"(" * 100_000 + b"t" * 100_000 + b"Nu"))), "no network",
    ),
    "modules in modules": (
        lambda: archive(pickled(Code(code(Name("a", "B")) * 100_000 + b")\x81" + b"\x85\x81" * 99_999))), "no network",
    ),
    "a huge place in the memo": (lambda: archive(pickled(Code(b"Nr\xff\xff\xff\xff"))), "no network"),
    "a million operations": (lambda: archive(b"\x80\x02" + b"N" * (1 << 20) + b"."), "operations"),
    "an extension's number": (lambda: archive(b"\x80\x02\x82\x01."), "EXT1"),
    "a change of a class": (lambda: archive(pickled(Code(code(Name("os", "environ")) + b"}b"))), "damaged"),
    "a change of a module's list": (lambda: archive(pickled(Code(code(Name("sys", "path")) + b"(Ne"))), "damaged"),
    "a name with an escape code": (
        lambda: archive(pickled({"\x1b[31m\n": tensor(storage("0", 5), 4)}), {"0": FOUR}), "should have",
    ),
    "a function that no Python has": (lambda: archive(pickled(Code(b"cos\nmk\x1bdir\n"))), "no Python has"),
    "two names that become one": (
        lambda: archive(pickled(dict.fromkeys(["a", "module.a"], tensor(storage("0", 4), 4))), {"0": FOUR}),
        "the same name",
    ),
    "a name that is too long": (
        lambda: archive(pickled({"a" * 1000: tensor(storage("0", 4), 4)}), {"0": FOUR}), "1,000 characters",
    ),
    "a program": (lambda: archive(b"", **{"constants.pkl": b""}), "TorchScript"),
    "an archive of something else": (lambda: archive(b"", root="a/b"), "not one that torch wrote"),
    "big-endian numbers": (lambda: archive(b"", byteorder=b"big"), "byte order"),
    "no archive": (lambda: b"not an archive", "not a file that torch wrote"),
}  # fmt: skip


@pytest.mark.parametrize("what", CLAIMS)
def test_files_that_claim_much_are_refused_at_once(tmp_path: Path, what: str) -> None:
    content, message = CLAIMS[what]
    assert re.search(message, refused(write(tmp_path / "a.pt", content())))


def test_what_is_too_large_no_plain_file_or_of_torch_before_zip_archives_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.pt").open("wb") as file:
        file.truncate(1 << 40)
    assert "1,099,511,627,776 bytes" in refused(tmp_path / "a.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert "torch before 1.6" in refused(tmp_path / "a.pt")
    for make_path in (os.mkfifo, os.mkdir):
        (tmp_path / "a.pt").unlink()
        make_path(tmp_path / "a.pt")
        refused(tmp_path / "a.pt")
