"""The fuzz targets, each in the module of its subject. `TARGETS` names them all."""

from collections.abc import Mapping

from tests.fuzz.target import Target
from tests.fuzz.targets import bodies, files, lines, messages, port, texts

TARGETS: Mapping[str, Target] = {
    target.name: target
    for module in (messages, bodies, lines, texts, files, port)
    for target in module.TARGETS
}
