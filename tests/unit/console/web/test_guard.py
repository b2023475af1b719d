"""A console in a browser uses its own folder and Python's files, nothing else."""

import os
import sys
from pathlib import Path

import pytest

import console.web
from console.web.guard import NotInBrowser, auditor

READ = os.O_RDONLY
WRITE = os.O_WRONLY | os.O_CREAT


def test_only_the_own_folder_is_written_and_only_the_program_is_read(tmp_path: Path) -> None:
    own, cert = tmp_path / "own", tmp_path / "cert.pem"
    own.mkdir()
    (own / "way-out").symlink_to(tmp_path)
    check = auditor(own, [str(cert)])
    program = str(Path(console.web.__file__))
    for event, args in (
        ("open", (str(own / "journal.db"), "w", WRITE)),
        ("open", (str(cert), "r", READ)),
        ("open", (program, "r", READ)),
        ("open", (os.__file__, None, READ)),
        ("open", (os.devnull, "w", WRITE)),
        ("open", (7, "w", WRITE)),
        ("os.scandir", (str(own),)),
        ("os.remove", (str(own / "x"), -1)),
        ("socket.connect", ()),
    ):
        check(event, args)
    for event, args in (
        ("open", ("/etc/passwd", "r", READ)),
        ("open", (b"/etc/passwd", None, READ)),
        ("open", (str(tmp_path / "token"), "r", READ)),
        ("open", (str(own / ".." / "token"), "r", READ)),
        ("open", (str(own / "way-out" / "token"), "r", READ)),
        ("open", (str(tmp_path / "own-other"), "r", READ)),
        ("open", (f"/proc/{os.getppid()}/environ", "r", READ)),
        ("open", (program, "w", WRITE)),
        ("open", (program, None, os.O_RDWR)),
        ("open", (str(cert), "a", WRITE)),
        ("os.scandir", ("/home",)),
        ("os.listdir", (str(tmp_path),)),
        ("os.remove", (program, -1)),
        ("os.rename", (str(own / "x"), str(tmp_path / "x"), -1, -1)),
        ("subprocess.Popen", (sys.executable, [], None, None)),
        ("os.system", ("true",)),
        ("os.posix_spawn", ("true", [], {})),
    ):
        with pytest.raises(NotInBrowser):
            check(event, args)
