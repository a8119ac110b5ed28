"""Who signed: the report itself, and the file that it is about."""

from __future__ import annotations

from pathlib import Path

from dplangevin.errors import InvalidParameter
from dplangevin.report.document import Facts, Section, Text
from dplangevin.signing import Signer, verify

_MEANING = (
    "A signature holds when `dplangevin verify FILE --key PUB` says so, with the signer's own public key."
)


def signed_section(
    sign: str | Path | None, source: str | Path | None
) -> tuple[Signer | None, Section | None]:
    """The signer of the report, and what the report says of signatures; None where there are none."""
    signer, rows = None if sign is None else Signer(sign), []
    if source is not None:
        try:
            found = verify(source)
        except InvalidParameter as error:
            if "dplangevin[sign]" not in str(error):
                raise
            rows.append(
                (Path(source).name, "carries a signature that was not checked: the extra `sign` is missing")
            )
        else:
            rows += [] if found is None else [(Path(source).name, str(found))]
    if signer is not None:
        rows.append(
            ("this report", f"signed by {signer.name or 'someone without a name'} with the key {signer.key}")
        )
    if not rows:
        return signer, None
    return signer, Section(title="Who signed", blocks=[Facts(rows=rows), Text(words=_MEANING)])
