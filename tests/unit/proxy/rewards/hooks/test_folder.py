"""The fingerprint of a hook folder, and the truncation of its log."""

from pathlib import Path

from proxy.rewards import files


def test_the_stamp_covers_only_python_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    for folder in ("inner", ".git", "__pycache__", "env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.py").write_text("2")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert [name for name, _, _ in files.folder_stamp(tmp_path)] == ["a.py", "inner/b.py"]
    before = files.digest(tmp_path)
    (tmp_path / "notes.txt").write_text("2")
    assert files.digest(tmp_path) == before
    (tmp_path / "inner" / "b.py").write_text("3")
    assert files.digest(tmp_path) != before


def test_no_folder_has_an_empty_stamp(tmp_path: Path) -> None:
    assert files.folder_stamp(tmp_path / "missing") == ()


def test_logs_are_truncated_while_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with file.open("ab", buffering=0) as writer:
        writer.write(b"a" * 900 + b"b" * 200)
        files.trim_log(file, 1_000)
        writer.write(b"end")
    assert file.read_bytes() == b"a" * 50 + b"b" * 200 + b"end"
    files.trim_log(file, 1_000)
    assert len(file.read_bytes()) == 253
