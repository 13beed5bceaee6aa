"""Errors, and the gate that a library must pass before it is used."""
import pickle
import shutil
import subprocess
import threading

import pytest
from conftest import CASES
from oracle import ROOT

import moe
from moe.errors import BY_STATUS, error_of


@pytest.mark.case("ERR-01")
def test_each_status_has_its_exception(case):
    for name, status in case["statuses"].items():
        error = error_of(status, "a sentence", "moe_call")
        assert type(error) is BY_STATUS[status] and isinstance(error, moe.MoeError)
        assert type(error) is not moe.MoeError
        assert error.status == status and error.status.name == name
        assert error.name == f"MOE_ERROR_{name}"
    assert set(case["statuses"].values()) == {status for status in moe.Status if status}


@pytest.mark.case("ERR-01")
def test_the_library_raises_them(tmp_path):
    with pytest.raises(moe.InvalidArgumentError) as caught:
        moe.LayerDesc().validate()
    assert caught.value.status == -1 and caught.value.call == "moe_layer_validate"
    with pytest.raises(moe.NotFoundError):
        moe.Format.named("no such format")
    with pytest.raises(moe.IoError):
        moe.Checkpoint(tmp_path / "absent")


@pytest.mark.case("ERR-01")
@pytest.mark.parametrize(
    "status, builtin", [(-1, ValueError), (-2, MemoryError), (-3, NotImplementedError), (-10, OSError), (-12, LookupError)]
)
def test_they_are_the_builtin_kinds_too(status, builtin):
    assert isinstance(error_of(status), builtin)


@pytest.mark.case("ERR-02")
def test_an_unknown_status_keeps_its_number(case):
    error = error_of(case["unknown_status"], "from the future", "moe_call")
    assert type(error) is moe.MoeError
    assert error.status == case["unknown_status"]
    assert error.name == case["unknown_name"] and "from the future" in str(error)
    assert moe.library().text("moe_status_name", case["unknown_status"]) == case["unknown_name"]


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(error_of(-10, "a sentence", "moe_call")))
    assert (type(error), error.status, error.message) == (moe.IoError, -10, "a sentence")


@pytest.mark.case("ERR-03")
def test_the_sentence_names_field_and_value(case):
    with pytest.raises(moe.InvalidArgumentError) as caught:
        moe.LayerDesc(**case["bad_layer"]).validate()
    assert all(part in caught.value.message for part in case["message_has"])
    with pytest.raises(moe.IoError, match=case["absent_file"]):
        moe.Checkpoint(case["absent_file"])


@pytest.mark.case("ERR-04")
def test_threads_keep_their_own_sentences(case):
    wrong = []

    def fail(number):
        for _ in range(case["rounds"]):
            try:
                moe.Format.named(f"format-of-thread-{number}")
                wrong.append("no error")
            except moe.NotFoundError as error:
                if f"format-of-thread-{number}" not in error.message:
                    wrong.append(error.message)

    threads = [threading.Thread(target=fail, args=(number,)) for number in range(case["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.case("VER-01")
def test_versions_can_be_read(case):
    assert moe.abi_version() == moe.abi.ABI_VERSION == case["abi_version"]
    assert moe.version() == 1000 and moe.version_string() == moe.__version__
    assert moe.build_info()[case["build_info_has"].rstrip("=")] == moe.version_string()


@pytest.fixture
def fake(tmp_path):
    """A library that claims an ABI version and has nothing else."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("there is no C compiler to make the fake library")

    def make(version):
        path = tmp_path / f"libfake{version}.so"
        source = ROOT / CASES["VER-02"]["source"]
        command = [compiler, "-shared", "-fPIC", f"-DFAKE_ABI={version}", source, "-o", path]
        subprocess.run(command, check=True)
        return path

    return make


@pytest.mark.case("VER-02")
def test_another_abi_is_refused_first(case, fake, monkeypatch):
    for version in case["versions"]:
        path = fake(version)
        with pytest.raises(moe.AbiVersionError, match=f"ABI version {version}, wanted 1") as caught:
            moe.Library(path)
        assert (caught.value.found, caught.value.wanted) == (version, 1)
        monkeypatch.setenv("MOE_LIBRARY", str(path))
        with pytest.raises(moe.AbiVersionError):
            moe.load()
    assert moe.library().path not in map(str, (fake(v) for v in case["versions"]))


@pytest.mark.case("VER-03")
def test_a_library_without_functions_is_refused_by_name(case, fake):
    with pytest.raises(moe.LibraryError, match=f"lacks the symbol {case['names']}"):
        moe.Library(fake(1))


@pytest.mark.case("VER-03")
def test_a_missing_library_says_what_was_tried(monkeypatch):
    monkeypatch.setattr("moe.loading.FILE_NAME", "libmoe-nowhere.so")
    monkeypatch.setenv("MOE_LIBRARY", "/no/such/libmoe.so")
    with pytest.raises(moe.LibraryError) as caught:
        moe.load()
    assert "/no/such/libmoe.so" in str(caught.value) and "libmoe-nowhere.so" in str(caught.value)
    with pytest.raises(moe.LibraryError, match="/no/such/other.so"):
        moe.load("/no/such/other.so")
