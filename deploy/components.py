"""Writes lists of the components that muster runs with, in the format CycloneDX 1.6:

environment.cdx.json     the Python packages of this environment
muster-server.cdx.json   the Python and Debian packages of the image, if it is here
muster-client.cdx.json   likewise
"""

import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from muster.common.installation import NAME

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "deploy/components"
IMAGES = ("muster-server", "muster-client")

_COLLECT = """
import json, platform, re
from importlib.metadata import distributions

packages = {}
for found in distributions():
    about = found.metadata
    classifiers = (each.split(" :: ")[-1] for each in about.get_all("Classifier") or ()
                   if each.startswith("License ::"))
    name = re.sub(r"[-_.]+", "-", about["Name"]).lower()
    packages.setdefault(name, {
        "name": name,
        "version": found.version,
        "license": about.get("License-Expression") or next(classifiers, ""),
        "requires": [each for each in found.requires or () if "extra ==" not in each],
    })
debian = []
if platform.freedesktop_os_release().get("ID") == "debian":
    for paragraph in open("/var/lib/dpkg/status", encoding="utf-8").read().split("\\n\\n"):
        fields = dict(re.findall(r"^([\\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            debian.append({"name": fields["Package"], "version": fields["Version"],
                           "architecture": fields["Architecture"]})
print(json.dumps({"python": platform.python_version(), "packages": list(packages.values()),
                  "debian": debian}))
"""
"""Prints what is installed. It runs in an image, where there is only the standard library. Of two
versions of a package the first one is imported."""


def component_list(name: str, version: str, installed: dict[str, Any], at: datetime) -> str:
    """The text of a list.

    Args:
        name: what contains the components.
        installed: what `_COLLECT` printed.
    """
    content = json.dumps([name, version, installed], sort_keys=True)
    root = Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=name)
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, content),
        metadata=BomMetaData(component=root, timestamp=at),
    )
    packages = {package["name"]: _python_package(package) for package in installed["packages"]}
    others = [_python(installed["python"]), *map(_debian_package, installed["debian"])]
    for component in (*packages.values(), *others):
        bom.components.add(component)
    bom.register_dependency(root, [*packages.values(), *others])
    for package in installed["packages"]:
        needed = [packages[each] for each in _names(package["requires"]) if each in packages]
        bom.register_dependency(packages[package["name"]], needed)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def _python(version: str) -> Component:
    url = PackageURL("generic", name="python", version=version)
    return Component(name="python", version=version, type=ComponentType.PLATFORM, purl=url)


def _python_package(package: dict[str, Any]) -> Component:
    name, version = package["name"], package["version"]
    licenses = [LicenseFactory().make_from_string(package["license"])] if package["license"] else []
    # It comes from here, and not from the index.
    url = PackageURL("pypi", name=name, version=version) if name != NAME else None
    return Component(
        name=name, version=version, licenses=licenses, purl=url, bom_ref=f"{name}=={version}"
    )


def _debian_package(package: dict[str, str]) -> Component:
    name, version, architecture = package["name"], package["version"], package["architecture"]
    qualifiers = {"arch": architecture}
    url = PackageURL("deb", "debian", name, version, qualifiers)
    return Component(name=name, version=version, purl=url, bom_ref=url.to_string())


def _names(requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        (name,) = re.findall(r"^[\w.-]+", requirement)
        yield re.sub(r"[-_.]+", "-", name).lower()


def of_environment() -> dict[str, Any]:
    """The Python packages of this environment. The rest of this machine is not muster's."""
    printed = subprocess.check_output([sys.executable, "-c", _COLLECT], text=True)
    return {**json.loads(printed), "debian": []}


def of_image(image: str) -> dict[str, Any] | None:
    """The packages of an image; None if there is no such image here."""
    try:
        subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    command = ["docker", "run", "--rm", "--network", "none", image, "python", "-c", _COLLECT]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return found


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=LISTS, help="The folder.")
def main(out: Path) -> None:
    """Write lists of components."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {"environment": of_environment()}
    for name in IMAGES:
        installed = of_image(f"{name}:{version}")
        if installed is None:
            click.echo(f"components: there is no image {name}:{version} here; make images")
        else:
            found[name] = installed
    out.mkdir(parents=True, exist_ok=True)
    for name, installed in found.items():
        path = out / f"{name}.cdx.json"
        path.write_text(component_list(name, version, installed, datetime.now(UTC)) + "\n")
        count = len(installed["packages"]) + len(installed["debian"])
        click.echo(f"components: {path}, {count} packages")


if __name__ == "__main__":
    main()
