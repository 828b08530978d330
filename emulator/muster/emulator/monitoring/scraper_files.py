"""The credentials of Prometheus, which reads each part of them from a file of its own.

Prometheus reads the files again for every scrape: it needs no restart when the run starts again or
when its certificates are renewed.
"""

from pathlib import Path
from typing import Final

from muster.common.credentials import Credentials, write_secret

TOKEN: Final = "token"
CERTIFICATE: Final = "certificate.pem"
KEY: Final = "key.pem"
AUTHORITY: Final = "authority.pem"


def write_scraper_files(folder: Path, credentials: Credentials) -> None:
    """Write the credentials into a folder. Without TLS there is only the token."""
    write_secret(folder / TOKEN, credentials.shown.hex())
    if credentials.tls is not None:
        write_secret(folder / CERTIFICATE, credentials.tls.certificate)
        write_secret(folder / KEY, credentials.tls.key)
        write_secret(folder / AUTHORITY, credentials.tls.authority)
