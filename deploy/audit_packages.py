"""Asks an advisory service, with pip-audit, for known vulnerabilities of all Python packages in the
lists of components (deploy/components.py). Options are passed on to pip-audit, for example
`--vulnerability-service osv`.

Exit status: 0 if there are none, 1 if there are some, 2 if the service does not answer or knows no
package. Debian's packages are not asked for: a scanner that reads CycloneDX can do that.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from components import LISTS
from packageurl import PackageURL


class Unavailable(click.ClickException):
    """There is no advisory service."""

    exit_code = 2


def requirements(components: dict[str, Any]) -> Iterator[str]:
    """The Python packages of a list, as lines for pip. Advisories know no local versions, such as
    the one of torch for CPU."""
    for component in components["components"]:
        if component.get("purl", "").startswith("pkg:pypi/"):
            url = PackageURL.from_string(component["purl"])
            yield f"{url.name}=={str(url.version).partition('+')[0]}"


def audit(lists: list[Path], options: tuple[str, ...]) -> dict[str, Any]:
    """What pip-audit reports of the packages in `lists`.

    Raises:
        Unavailable: it reports nothing.
    """
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json"]
    with tempfile.TemporaryDirectory() as folder:
        for path in lists:
            pinned = Path(folder) / f"{path.stem}.txt"
            pinned.write_text("\n".join(requirements(json.loads(path.read_text()))))
            command += ["--requirement", str(pinned)]
        done = subprocess.run(
            [*command, "--progress-spinner", "off", *options], capture_output=True, text=True
        )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        raise Unavailable(f"the advisory service does not answer: {why}") from None
    return report


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--lists", type=click.Path(path_type=Path), default=LISTS, help="Their folder.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(lists: Path, options: tuple[str, ...]) -> None:
    """Audit the packages in the lists of components."""
    found = sorted(lists.glob("*.cdx.json"))
    if not found:
        raise click.UsageError(f"{lists} has no lists of components: make sbom")
    packages = audit(found, options)["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        raise Unavailable("the advisory service knows none of the packages: is it reachable?")
    vulnerable = [package for package in known if package["vulns"]]
    for package in vulnerable:
        for advisory in package["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            named = f"{package['name']} {package['version']}"
            click.echo(f"{named}: {advisory['id']}, fixed in {fixed}")
    for package in packages:
        if "skip_reason" in package:
            click.echo(f"{package['name']}: not audited, {package['skip_reason']}")
    click.echo(f"{len(vulnerable)} of {len(known)} packages have known vulnerabilities")
    sys.exit(1 if vulnerable else 0)


if __name__ == "__main__":
    main()
