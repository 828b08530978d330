"""What an audit cannot find, with the reasons. docs/audit.md shows it, and `make tamperings`
requires that everything else is found."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple


class Unchecked(NamedTuple):
    """A sort of change that an audit cannot find.

    Attributes:
        what: what is changed, as the page says it.
        because: why that cannot be checked: the end of a sentence.
        subjects: patterns of what is changed, as `make tamperings` names it.
    """

    what: str
    because: str
    subjects: Sequence[str]


UNCHECKED = (
    Unchecked(
        "moments and durations, by less than their order shows: `at`, `opened_at`, `seconds`, "
        "`train_s`, `transfer_s`, `wait_s`, and all others",
        "only the clocks of the run have measured them",
        (
            "* ledger *.at",
            "* ledger *.at, *",
            "* ledger *_at*",
            "* ledger *seconds*",
            "* ledger *train_s*",
            "* ledger *transfer_s*",
            "* ledger *wait_s*",
            "* journal *.at",
            "* journal *.seconds",
            "* ledger *.rate_bps*",
            "* ledger answers.x_age_s*",
        ),
    ),
    Unchecked(
        "the training losses of updates that did not count",
        "`--train` trains again only what counted",
        ("* ledger contributions.loss*",),
    ),
    Unchecked(
        "`scenario.toml` together with its hashes: settings that have decided nothing in this run",
        "an honest run with them leaves the same folder, but for moments (`make tamperings` makes "
        "this run)",
        (),
    ),
    Unchecked(
        "`scenario.toml` together with its hashes: how many devices share a process, in the mode "
        "`buffered`",
        "it calls them at different moments, so that each call has the model",
        ("* scenario.toml groups.devices_per_process, and what follows",),
    ),
    Unchecked(
        "settings that may be changed between two starts of a run (`launch`, `modules`, ports, "
        "`stall_s`, the directory of data), and where a server listens",
        "they change no result, and a run goes on with others",
        ("* setup/server.json *port", "* setup/server.json host", "* setup/server.json credentials",
         "* setup/server.json server.stall_s", "* setup/server.json outside",
         "* setup/server.json evaluation", "* setup/server.json server.metrics_port"),
    ),
    Unchecked(
        "a key that is missing in `setup/server.json`",
        "an earlier muster did not write it (what follows from the key is compared)",
        ("delete setup/server.json *",),
    ),
    Unchecked(
        "in a run of rational devices: how they train, losses, versions whose content is not "
        "there, and accuracies, losses and curves that devices have reported, where no decision "
        "and no weight follows from them",
        "such a run cannot be trained again from its record",
        ("* scenario.toml training.*, and what follows",
         "* ledger valuations.*", "* ledger versions.sha256*", "* ledger evaluations.loss, and*",
         "* ledger evaluations.accuracy, and*", "* ledger contributions.initial_loss*"),
    ),
    Unchecked(
        "peak memory, processes, traffic of gateways, measurements of links, the text of warnings "
        "and errors, the steps of secure sums, "
        "and what somebody injected by hand",
        "the ledger has nothing to compare them with",
        ("* journal *rss_mib", "* journal started*", "* journal died*", "* journal restarted*",
         "* journal placed*", "* journal verif*", "* journal traffic*", "* journal warned*",
         "* journal waiting*", "* journal secure_s*", "* journal left*",
         "* journal disk_*", "* journal fault_injected*",
         "* ledger contributions.error, and what follows"),
    ),
    Unchecked(
        "the version from which an update was trained that did not count",
        "its device says so, and its round may be another one",
        ("* ledger contributions.base_version*",),
    ),
    Unchecked(
        "the place in `memory.bin` for the update before the newest one of a device, and bits of a "
        "kept sum that are below the precision of the model",
        "nothing follows from them",
        ("change file memory.bin", "change file sums/*.bin"),
    ),
    Unchecked(
        "the event of an answer whose update is in the journal, too",
        "an update that overtakes its answer is enough",
        ("* journal answered*",),
    ),
    Unchecked(
        "the fingerprint of a device, and how its last session was told apart",
        "only the device knows its machine",
        ("* ledger clients.fingerprint*",),
    ),
    Unchecked(
        "files that are missing: `summary.json`, `population.csv`, `plan.csv`, `faults.json`, "
        "`ledger.sqlite-sums`; and `address.json`, `setup/run`, `report.html`, `logs`, `devices`",
        "a run that was killed leaves none either (the output names what is missing), and nothing "
        "of the result is in the last ones",
        ("delete file summary.json", "delete file population.csv", "delete file plan.csv",
         "delete file faults.json", "delete file ledger.sqlite-sums", "* file address.json",
         "* file setup/*", "* file .*", "* file report.html", "* file no-room*"),
    ),
)  # fmt: skip


def excused(name: str) -> Unchecked | None:
    """Why an audit cannot find a change; None if it should.

    Args:
        name: what is changed, as `make tamperings` names it.
    """
    matching = (
        each for each in UNCHECKED if any(fnmatchcase(name, subject) for subject in each.subjects)
    )
    return next(matching, None)
