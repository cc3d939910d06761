"""The import rules of contracts/architecture.toml hold, and each of them bites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "turnwright": ROOT / "src",
    "turnwright_adapters": ROOT / "adapters",
    "turnwright_contracts": ROOT / "contracts",
}


def lint_imports(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Judge the packages that lie in *path*, or those of this checkout if none do."""
    return subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            ROOT / "contracts" / "architecture.toml",
            "--no-logo",
            "--no-cache",
            *options,
        ],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(path), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_import_rules_hold() -> None:
    """No module of this checkout imports what its place forbids."""
    judgement = lint_imports(ROOT)

    assert 0 == judgement.returncode, judgement.stdout + judgement.stderr


@pytest.mark.parametrize(
    ("rule", "offence"),
    [
        ("layers", {"turnwright/messages.py": "import turnwright.ports"}),
        ("layers", {"turnwright/unplaced.py": ""}),
        ("no-circles", {"turnwright_adapters/a.py": "from . import b", "turnwright_adapters/b.py": "from . import a"}),
        ("purity", {"turnwright/decide.py": "import time"}),
        ("purity", {"turnwright/evidence.py": "from datetime import datetime"}),
        ("core", {"turnwright/driver.py": "import httpx"}),
        ("core", {"turnwright/run.py": "import turnwright_adapters"}),
        ("adapters", {"turnwright_adapters/a.py": "from . import b", "turnwright_adapters/b.py": ""}),
        ("suites", {"turnwright_contracts/a.py": "import turnwright_adapters"}),
    ],
)
def test_each_import_rule_bites(tmp_path: Path, rule: str, offence: dict[str, str]) -> None:
    """A forbidden import, added to a copy of the packages, breaks the rule that was made for it."""
    for package, parent in PACKAGES.items():
        shutil.copytree(parent / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for module, source in offence.items():
        with (tmp_path / module).open("a", encoding="utf-8") as file:
            file.write(f"\n{source}\n")

    judgement = lint_imports(tmp_path, "--contract", rule)

    assert 1 == judgement.returncode, judgement.stdout + judgement.stderr
    assert "0 kept, 1 broken" in judgement.stdout


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("turnwright_contracts", "pytest", "testing"),
        ("turnwright.testing.strategies", "hypothesis", "testing"),
        ("turnwright.testing.machine", "hypothesis", "testing"),
        ("turnwright_adapters.postgres", "psycopg", "postgres"),
    ],
)
def test_what_needs_an_extra_names_it(module: str, package: str, extra: str) -> None:
    """Where a package is missing, the error says how to install it."""
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"

    tried = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert f"{package} is not installed; install it with: pip install 'turnwright[{extra}]'" in tried.stderr


def test_importing_turnwright_imports_no_library_that_a_run_may_not_need() -> None:
    """The package opens without an HTTP client, a logger, a database, a patch library or anybody's SDK."""
    heavy = {"a2a", "ag_ui", "asyncpg", "cryptography", "dbos", "httpx", "jsonpatch", "mcp", "opentelemetry", "psycopg"}
    heavy |= {"pydantic", "rich", "sqlite3", "starlette", "structlog", "temporalio", "uvicorn", "xllamacpp"}
    program = f"import sys, turnwright; print(*sorted({heavy!r} & sys.modules.keys()))"

    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert "" == imported.stdout.strip()
