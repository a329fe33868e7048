"""The copy of a context for the person it is about: a readable file without PRIVATE segments and without the journal.

The JSON has the form of `ContextSystem.marshal`, so it can be loaded again. The HTML is one file without scripts, and
it loads nothing: pictures that the context holds are inside it, and pictures at an address are shown as the address.
"""

import os
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final, Literal, get_args

from quire.core.context_copy import Progress, ProgressCallback
from quire.core.integrity import check_records, snapshot_of
from quire.errors import InvalidValue, short_repr
from quire.maintenance.export import check_target, new_file
from quire.model.pages import Lifecycle, Mark
from quire.model.text import format_json
from quire.storage.base import check_context_name, check_storage, no_such_context
from quire.storage.contract import Storage
from quire.system import ContextSystem
from quire.system.json_form import to_document

ExportFormat = Literal["quire", "json", "html"]


def write_person_copy(
    storage: Storage,
    context: str,
    path: str | os.PathLike[str],
    form: ExportFormat,
    *,
    overwrite: bool,
    progress: ProgressCallback | None,
) -> Progress:
    """Write a person's copy to a file, which appears when it is complete; return the totals. `records` counts pages.

    Raises `NoSuchContext`, `InvalidValue` for an unknown format, `InvalidOperation` if the file exists, and `Corrupt`.
    """
    if form not in get_args(ExportFormat):
        raise InvalidValue(f"is {short_repr(form)}; use {', '.join(get_args(ExportFormat))}.", argument="format")
    target = check_target(path, overwrite=overwrite)
    data, pages = format_context(storage, context, form)
    with new_file(target, overwrite=overwrite) as (file, publish):
        file.write(data)
        publish()
    done = Progress(context=context, phase="done", records=pages, bytes=len(data))
    if progress is not None:
        progress(done)
    return done


def format_context(storage: Storage, context: str, form: ExportFormat) -> tuple[bytes, int]:
    """Return a person's copy, and the number of its pages. Raises `Corrupt` if any record is damaged or missing."""

    with snapshot_of(check_storage(storage), check_context_name(context)) as (snapshot, found):
        if found is None:
            raise no_such_context(storage, context)
        check_records(snapshot, context, found)
        document = ContextSystem(snapshot, context)._engine.read(lambda state: to_document(state, private=False))
    data = format_json(document) + b"\n" if form == "json" else "".join(_to_html(context, document)).encode()
    return data, len(document["pages"])


_HEAD: Final = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
article {{ border-top: 1px solid #8886; padding: .5rem 0; }}
h3 {{ margin: 0; font-size: 1rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: .5rem 0; }}
small {{ color: #777; }}
img {{ max-width: 100%; }}
</style></head><body dir="auto">
<h1>{title}</h1>
"""


def _to_html(context: str, document: Mapping[str, Any]) -> Iterator[str]:
    pages = document["pages"]
    yield _HEAD.format(title=escape(context))
    yield f"<p><small>{escape(document['createdAt'])} – {escape(document['updatedAt'])}</small></p>\n"
    for segment in document["segments"]:
        listed = list(_in_order(pages, segment["rootIndex"]))
        in_tree = set(listed)
        cold = [index for index in pages if index.rpartition("-")[0] == segment["id"] and index not in in_tree]
        yield f"<section><h2>{escape(segment['name'])}</h2>\n"
        if segment["description"]:
            yield f"<p>{escape(segment['description'])}</p>\n"
        for index in (*listed[1:], *cold):
            yield from _page_to_html(index, pages[index])
        yield "</section>\n"
    yield "</body></html>\n"


def _in_order(pages: Mapping[str, Any], root: str) -> Iterator[str]:
    """Yield the pages below a root, parents first."""
    waiting = [root]
    while waiting:
        index = waiting.pop()
        yield index
        waiting += reversed(pages[index].get("children", ()))


def _page_to_html(index: str, page: Mapping[str, Any]) -> Iterator[str]:
    mark, lifecycle = Mark(page.get("mark", 0)), Lifecycle(page["lifecycle"])
    states = [state.name.lower().replace("_", " ") for state in (mark, lifecycle) if state]
    facts = [index, page["author"], page["createdAt"], *states]
    yield f'<article id="{escape(index)}"><h3>{escape(page["name"])}</h3>\n'
    yield f"<small>{escape(' · '.join(filter(None, facts)))}</small>\n"
    if page["description"]:
        yield f"<p>{escape(page['description'])}</p>\n"
    if page.get("detail"):
        yield f"<pre>{escape(page['detail'])}</pre>\n"
    for message in page.get("messages", ()):
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            yield from _picture_to_html(part)
    yield "</article>\n"


def _picture_to_html(part: Mapping[str, Any]) -> Iterator[str]:
    if part.get("type") != "image":
        return
    url, data = part.get("url"), part.get("data")
    if isinstance(data, str):
        url = f"data:{part.get('media_type', 'image/png')};base64,{data}"
    if isinstance(url, str) and url.startswith("data:image/"):
        yield f'<img alt="" src="{escape(url)}">\n'
    elif isinstance(url, str):
        yield f"<p>{escape(url)}</p>\n"
