"""Files are replaced as a whole or not at all; signatures hold for the unchanged file and the right key only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin import _files, report, signing
from dplangevin.accounting.plan import load_plan, save_plan
from dplangevin.cli.main import run_command_line as command
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import DPRidge, model_file
from dplangevin.queries import count_marginals
from dplangevin.schema import Schema
from unit.mechanisms.test_run_state import plan

posix = pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    save_plan(plan(), path)
    kept = path.read_bytes()

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, moment, full)
        with pytest.raises(OSError, match="No space left"):
            save_plan(plan(noise_std=0.9), path)
    assert path.read_bytes() == kept
    assert left(tmp_path) == ["plan.json"]


KILLED = """
import os, sys
from pathlib import Path
replace = os.replace
os.replace = lambda *names: os.kill(os.getpid(), 9)
"""
WRITERS = {
    "plan.json": "from dplangevin.accounting.plan import save_plan\n"
    "from unit.mechanisms.test_run_state import plan\nsave_plan(plan(), 'plan.json')",
    "schema.toml": "from dplangevin.schema import Schema\n"
    "Schema.from_dict({'columns': {'a': {'range': [0, 1]}}}).save('schema.toml')",
    "out.json": "from dplangevin.cli.main import run_command_line\nfrom dplangevin.ledger import Ledger\n"
    "Ledger.create('sqlite:///l.db')\n"
    "run_command_line(['ledger', 'export', '--ledger', 'sqlite:///l.db', '-o', 'out.json'])",
    "numbers.csv": "from dplangevin.papers.gallery._draw import write_table\n"
    "write_table(Path('numbers.csv'), ['a'], [[1.5]])",
    "picture.svg": "from dplangevin.papers.gallery._draw import make_figure, save_figure\n"
    "save_figure(make_figure()[0], Path('picture.svg'))",
    "report.html": "from dplangevin import report\nfrom unit.mechanisms.test_run_state import plan\n"
    "report.write_report(plan(), 'report.html')",
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_killed_write_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("old")
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{KILLED}\n{WRITERS[name]}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == -9, done.stderr
    assert (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_interrupted_table_leaves_the_old_file(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the first of several blocks."""
    pd = pytest.importorskip("pandas")
    rows, schema = pd.DataFrame({"a": [0, 1] * 20, "b": [1, 0] * 20}), {"a": {"categories": [0, 1]}}
    stated = Schema.from_dict({"columns": {**schema, "b": {"categories": [0, 1]}}})
    counts = count_marginals(rows, stated, columns=["a", "b"], epsilon=1, delta=1e-6, random_state=3)
    path, blocks = tmp_path / f"counts.{suffix}", type(counts).column_blocks
    counts.write(path)
    kept = path.read_bytes()

    def interrupted(self: Any) -> Any:
        yield next(blocks(self))
        raise KeyboardInterrupt

    monkeypatch.setattr(type(counts), "column_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        counts.write(path)
    assert path.read_bytes() == kept
    assert left(tmp_path) == [path.name]


@posix
def test_links_and_modes_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "plan.json", tmp_path / "link.json"
    save_plan(plan(), target)
    target.chmod(0o640)
    link.symlink_to(target)
    save_plan(plan(noise_std=0.9), link)
    assert link.is_symlink()
    assert load_plan(target) == plan(noise_std=0.9)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert left(tmp_path) == ["link.json", "plan.json"]


@posix
def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        _files.write_text(pipe, "text")
        assert reader.communicate()[0] == "text"


# --- signatures --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("keys")
    assert command(["keys", "new", str(folder / "ada"), "--signer", "Ada --> Lovelace"]) == 0
    signing.create_key(folder / "eve", "Ada --> Lovelace")  # a name is no proof
    assert stat.S_IMODE((folder / "ada").stat().st_mode) == 0o600
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    fitted = DPRidge(epsilon=50.0, delta=1e-3, data_norm=2.0, target_bounds=(-1, 1), random_state=0).fit(
        X, X[:, 0]
    )
    model_file.save_model(fitted, tmp_path / "model.json")
    return tmp_path / "model.json"


def files(folder: Path, model: Path) -> list[Path]:
    save_plan(plan(), folder / "plan.json")
    for suffix in ("html", "md", "json"):
        report.write_report(plan(), folder / f"report.{suffix}")
    return [model, folder / "plan.json", *(folder / f"report.{suffix}" for suffix in ("html", "md", "json"))]


def test_signed_files_verify_and_altered_ones_do_not(
    keys: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in files(tmp_path, model):
        assert signing.verify_file(path) is None
        with pytest.raises(InvalidParameter, match="not signed"):
            signing.verify_file(path, keys / "ada.pub")
        signing.sign_file(path, keys / "eve")
        signing.sign_file(path, keys / "ada")  # replaces the first
        found = signing.verify_file(path, keys / "ada.pub")
        assert found is not None
        assert found.signer == "Ada --> Lovelace"
        assert command(["verify", str(path), "--key", str(keys / "ada.pub")]) == 0
        assert "signed by Ada --> Lovelace" in capsys.readouterr().out
        with pytest.raises(InvalidParameter, match="another key"):
            signing.verify_file(path, keys / "eve.pub")
        good = path.read_text()
        for old, new in (("epsilon", "Epsilon"), ("2", "3"), ("Ada", "Eva"), ("T", "U")):
            at = good.index(old)
            path.write_text(good[:at] + new + good[at + len(old) :])
            with pytest.raises(InvalidParameter):
                signing.verify_file(path, keys / "ada.pub")
        path.write_text(good)
        signing.verify_file(path, keys / "ada.pub")
    assert command(["verify", str(model), "--key", str(keys / "eve.pub")]) == 2
    assert load_plan(tmp_path / "plan.json") == plan()
    assert model_file.load_model(model).predict(np.zeros((1, 2))).shape == (1,)


def test_json_may_be_written_anew(keys: Path, model: Path) -> None:
    signing.sign_file(model, keys / "ada")
    model.write_text(json.dumps(json.loads(model.read_text()), sort_keys=True))
    assert signing.verify_file(model, keys / "ada.pub") is not None


def test_a_byte_order_mark_is_an_alteration(keys: Path, model: Path, tmp_path: Path) -> None:
    """Every byte before a signature is covered, and the first three are bytes too."""
    signing.sign_file(model, keys / "ada")
    report.write_report(model_file.load_model(model), tmp_path / "report.md", sign=keys / "ada")
    for path in (model, tmp_path / "report.md"):
        assert signing.verify_file(path, keys / "ada.pub") is not None
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        for key in (None, keys / "ada.pub"):
            with pytest.raises(InvalidParameter, match="byte order mark"):
                signing.verify_file(path, key)


def test_every_number_of_a_signed_model_is_covered(keys: Path, model: Path) -> None:
    """Whoever changes a field and mends the digest still lacks the key."""
    from dplangevin import _plain
    from fuzz._states import changed

    signing.sign_file(model, keys / "ada")
    plain, rng = json.loads(model.read_text()), np.random.default_rng(3)
    for _ in range(60):
        found = changed(plain, rng)
        if isinstance(found.get("digest"), str):
            found = _plain.add_digest(json.loads(json.dumps(found), parse_constant=str))
        if found == plain:  # the digest was changed, and mended
            continue
        model.write_text(json.dumps(found), encoding="utf-8", errors="surrogatepass")
        with pytest.raises(InvalidParameter):
            signing.verify_file(model, keys / "ada.pub")


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_reports_say_who_signed(suffix: str, keys: Path, model: Path, tmp_path: Path) -> None:
    signing.sign_file(model, keys / "ada")
    out = tmp_path / f"out.{suffix}"
    assert command(["report", str(model), str(out), "--sign", str(keys / "eve")]) == 0
    text = out.read_text()
    found = signing.verify_file(out, keys / "eve.pub")
    assert found is not None
    ada = signing.Signer(keys / "ada").key
    assert "signed by Ada" in text
    assert ada in text
    assert found.key in text


def test_the_command_line_signs_what_it_writes(keys: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (80, 2))
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,y", comments="")
    words = [
        "fit",
        str(tmp_path / "t.csv"),
        "--target",
        "y",
        "--model",
        "ridge",
        "--data-norm",
        "1",
        "--epsilon",
        "50",
    ]
    words += ["--target-bounds=-1,1", "--quiet", "--output", str(tmp_path / "m.json")]
    assert command([*words, "--report", str(tmp_path / "m.html"), "--sign", str(keys / "ada")]) == 0
    for name in ("m.json", "m.html"):
        assert signing.verify_file(tmp_path / name, keys / "ada.pub") is not None
    asked = [
        "plan",
        "--n",
        "500",
        "--n-features",
        "3",
        "--epsilon",
        "1",
        "--output",
        str(tmp_path / "p.json"),
    ]
    assert command([*asked, "--sign", str(keys / "ada")]) == 0
    assert signing.verify_file(tmp_path / "p.json", keys / "ada.pub") is not None
    (tmp_path / "m.json").unlink()
    assert command([*words, "--sign", str(keys / "ada.pub")]) == 2  # told before anything is made
    assert not (tmp_path / "m.json").exists()


def test_what_is_no_key_is_refused(keys: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "no").write_text("signer: Ada\nno key")
    for bad in (tmp_path / "no", tmp_path / "absent", keys / "ada.pub", model):
        with pytest.raises(InvalidParameter):
            signing.sign_file(model, bad)
    signing.sign_file(model, keys / "ada")
    for bad in (tmp_path / "no", tmp_path / "absent", keys / "ada"):
        with pytest.raises(InvalidParameter):
            signing.verify_file(model, bad)
    with pytest.raises(InvalidParameter, match="not overwritten"):
        signing.create_key(keys / "ada")


def test_without_the_extra_it_says_so(
    keys: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.sign_file(model, keys / "ada")
    monkeypatch.setitem(sys.modules, "dplangevin._ed25519", None)
    monkeypatch.delattr("dplangevin._ed25519", raising=False)
    with pytest.raises(InvalidParameter, match=r"dplangevin\[sign\]"):
        signing.verify_file(model, keys / "ada.pub")
    assert command(["report", str(model), str(tmp_path / "m.md")]) == 0
    assert "was not checked" in (tmp_path / "m.md").read_text()


def test_a_schema_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"columns": {"a": {"range": [0, 1]}}}', encoding="utf-8-sig")
    assert Schema.load(path).names == ("a",)
