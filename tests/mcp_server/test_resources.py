"""Pages as resources: paged lists, whole and partial reads, the agent's visibility; and the prompt."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError

import quire
from quire import Context, InvalidValue, NoSuchPage
from quire.mcp_server import server
from quire.mcp_server.resources import ResourceRange, ResourceUris
from tests.mcp_server.clients import read, run
from tests.mcp_server.conftest import URI


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_every_page_that_an_agent_sees_is_a_resource(ctx: Context, mode: Any) -> None:
    async def main() -> None:
        async with Client(server(ctx), mode=mode) as client:
            listed = (await client.list_resources()).resources
            pages = [page.index for page in ctx.agent.list_pages()]
            assert [one.uri for one in listed] == [URI + name for name in ("contents", "view", *pages)]
            assert not any("vault" in one.uri or "secret" in one.name for one in listed)
            note = next(one for one in listed if one.uri == f"{URI}mem-1")
            assert (note.name, note.description, note.mime_type) == ("座位", "靠窗", "text/plain")
            assert note.annotations is not None
            assert note.annotations.last_modified == ctx.pages.get_page("mem-1").updated_at.isoformat()
            assert await read(client, note.uri) == "She wants a window seat. 靠窗的座位"
            assert await read(client, f"{URI}mem-1?start=19&length=4") == "seat"
            assert await read(client, f"{URI}usr-1") == "User: I want to fly to Seattle."
            assert await read(client, f"{URI}mem-0") == "[mem-1 12] 座位: 靠窗"
            contents = await read(client, f"{URI}contents")
            assert contents == "\n".join(ctx.agent.view())
            assert "vault" not in contents
            view = await read(client, f"{URI}view")
            assert "I want to fly to Seattle." in view
            assert "secret" not in view

    before = ctx.seq
    run(main)
    assert ctx.seq == before  # reading writes nothing


@pytest.mark.parametrize(("mode", "code"), [("legacy", -32002), ("auto", -32602)])
def test_private_segments_do_not_exist_for_clients(ctx: Context, mode: Any, code: int) -> None:
    async def main() -> None:
        async with Client(server(ctx), mode=mode) as client:
            said = []
            for name in ("vault-0", "vault-1", "nowhere-0", "mem-99", "", "MEM-1", "mem-1/x", "../mem-1"):
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(URI + name)
                assert caught.value.code == code, name
                assert caught.value.data == {"code": "no_such_page", "uri": URI + name}
                said.append(str(caught.value).replace(repr(name), "PAGE"))
            assert len(set(said[:3])) == 1
            for uri in ("quire://other/mem-1", "file:///etc/passwd", "mem-1", "quire://[/mem-1"):
                with pytest.raises(MCPError, match="quire://"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="start is '-1'"):
                await client.read_resource(f"{URI}mem-1?start=-1")

    run(main)


def test_thousands_of_pages_are_listed_piece_by_piece() -> None:
    ctx = quire.open("memory:")
    for number in range(1_234):
        ctx.pages.create_detail_page(f"page {number}", "", "", "mem-0")

    async def main() -> None:
        async with Client(server(ctx)) as client:
            uris: list[str] = []
            cursor = None
            while True:
                some = await client.list_resources(cursor=cursor)
                assert len(some.resources) <= 102
                uris += [one.uri for one in some.resources]
                cursor = some.next_cursor
                if len(uris) == 102:  # removing a page during the listing hides no other page
                    ctx.pages.remove_page(uris[-1].rpartition("/")[2])
                if cursor is None:
                    break
            assert len(uris) == len(set(uris)) == 2 + 4 + 1_234
            folder = await read(client, "quire://default/mem-0")
            assert folder.count("\n") == 500
            assert folder.endswith("… more: quire://default/mem-0?start=500")
            rest = await read(client, "quire://default/mem-0?start=1230&length=2")
            assert rest.splitlines()[0].endswith("page 1231")
            assert rest.endswith("… more: quire://default/mem-0?start=1232")
            for wrong in ("nonsense", "vault-0", ""):
                with pytest.raises(MCPError, match="cursor") as caught:
                    await client.list_resources(cursor=wrong)
                assert caught.value.code == -32602

    run(main)


def test_templates_lead_to_pages(ctx: Context) -> None:
    async def main() -> None:
        async with Client(server(ctx)) as client:
            page, part = (await client.list_resource_templates()).resource_templates
            assert await read(client, page.uri_template.replace("{page}", "mem-1"))
            whole = part.uri_template.replace("{page}", "mem-1").replace("{?start,length}", "?start=0&length=3")
            assert await read(client, whole) == "She"

    run(main)


def test_the_preamble_is_a_prompt_in_the_words_of_the_tools_there_are(ctx: Context) -> None:
    async def said(**settings: Any) -> str:
        async with Client(server(ctx, **settings)) as client:
            (prompt,) = (await client.list_prompts()).prompts
            (message,) = (await client.get_prompt(prompt.name)).messages
            assert message.role == "user"
            with pytest.raises(MCPError, match="'other'"):
                await client.get_prompt("other")
            return str(message.content.text)  # type: ignore[union-attr]

    plain = run(said)
    assert plain == ctx.render(preview=True).messages[1].text
    assert plain.startswith("Context key: ")
    named = run(lambda: said(prefix="q_"))
    assert "q_find searches all pages, q_read_page reads one" in named
    assert named.replace("q_", "") == plain


# URIs


@settings(max_examples=40)
@given(st.text(min_size=1), st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}-[0-9]{1,9}", fullmatch=True))
def test_an_address_leads_back_to_its_page(context: str, page: str) -> None:
    uris = ResourceUris(context.encode("utf-8", "replace").decode())
    assert uris.parse(uris.uri(page)) == ResourceRange(page)
    assert uris.parse(uris.uri(page, start=7, length=9)) == ResourceRange(page, 7, 9)
    assert uris.uri(page).isascii()


@settings(max_examples=40)
@given(st.text())
def test_every_uri_is_parsed_or_refused(uri: str) -> None:
    uris = ResourceUris("default")
    for asked in (uri, f"quire://default/{uri}", f"quire://default/mem-1?{uri}"):
        with suppress(NoSuchPage, InvalidValue):
            assert isinstance(uris.parse(asked), ResourceRange)
