"""Whatever a server sends as a document, the client shows it or leaves it out."""

from __future__ import annotations

import io
import unicodedata
import xml.etree.ElementTree as ET
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gdn_client.document import read_document
from gdn_client.models import read_job
from gdn_client.report import junit, markdown
from gdn_client.report.build import job_report
from gdn_client.report.terminal import print_report
from support import sample_documents as sample
from support.fake_service import job

TEXT = st.text(st.characters(), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
MAKERS = (sample.roofline, sample.correctness_failed, sample.determinism, sample.codeobject)


def shown(data: dict[str, Any]) -> str:
    """All renderings of a job with this one document, one after another."""
    found = read_document(data)
    run = {"id": "r1", "suite": str(data.get("suite")), "state": "finished"}
    report = job_report(read_job(job("j1", "failed", runs=[run])), {"r1": found})
    file = io.StringIO()
    print_report(report, Console(file=file, width=80, markup=False, highlight=False))
    outcome = junit.Outcome("roofline", "sm90", found.verdict, found.reason, found)
    xml = junit.render("Job j1", {}, [outcome])
    ET.fromstring(xml)
    return file.getvalue() + markdown.render(report) + xml


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_in_any_place(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(MAKERS))().to_dict()
    place: Any = document
    while isinstance(place, dict | list) and place:
        key = data.draw(
            st.sampled_from(
                sorted(place) if isinstance(place, dict) else list(range(min(3, len(place))))
            )
        )
        inside = place[key]
        if isinstance(inside, dict | list) and inside and data.draw(st.booleans()):
            place = inside
            continue
        place[key] = data.draw(ANY)
        break
    text = shown(document)
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"}
    assert bad == set()
