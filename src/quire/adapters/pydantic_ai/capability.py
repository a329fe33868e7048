"""The capability that sends the model a view of the history, and the toolset of a context."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple, Unpack
from weakref import WeakKeyDictionary

from quire.adapters.context_pool import Followed, Shelf, Where, installed
from quire.adapters.pydantic_ai.messages import parse, printed, shown
from quire.agent.tools import Tools
from quire.aio import CallQueue
from quire.context import Context, Options
from quire.errors import Conflict, InvalidOperation, InvalidValue
from quire.providers.tool_schemas import count_tools
from quire.view.options import RenderOptions
from quire.view.view import View

with installed("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema


class _Anything:
    """Takes whatever a model sent: the tools look at it themselves, and tell the model what is wrong with it."""

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: A002 - the framework's word
        """What the text says as JSON; the text if it is none, or null, which the framework does not expect."""
        with suppress(ValueError):
            if (said := _ANY.validate_json(input, **options)) is not None:
                return said
        return input if isinstance(input, str) else bytes(input).decode(errors="replace")

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002
        """What was sent."""
        return input


_ANY = SchemaValidator(core_schema.any_schema())
_ANYTHING = _Anything()


class QuireToolset(AbstractToolset[Any]):
    """The tools of a context's agent: all of them, or those named."""

    def __init__(
        self,
        ctx: Context | Callable[[RunContext[Any]], Awaitable[Followed[Any]]],
        *,
        tools: bool | Sequence[str] = True,
        id: str | None = "quire",  # noqa: A002 - the word the framework has
    ) -> None:
        self._where = ctx
        self._chosen = tools
        self._id = id
        self._lane = CallQueue()

    @property
    def id(self) -> str | None:
        """The name of the toolset."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools that the context of the run has."""
        tools, lane = await self._tools(ctx)
        found: dict[str, ToolsetTool[Any]] = {}
        for schema in await lane.run(tools.openai):
            function = schema["function"]
            definition = ToolDefinition(
                name=function["name"],
                description=function["description"],
                parameters_json_schema=function["parameters"],
            )
            found[definition.name] = ToolsetTool(
                toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING
            )
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run a tool; whatever the model sent, this answers it."""
        tools, lane = await self._tools(ctx)
        return await lane.run(tools.call, name, tool_args)

    async def _tools(self, ctx: RunContext[Any]) -> tuple[Tools, CallQueue]:
        if isinstance(self._where, Context):
            context, lane = self._where, self._lane
        else:
            followed = await self._where(ctx)
            context, lane = followed.ctx, followed.lane
        return context.tools if isinstance(self._chosen, bool) else context.tools.only(*self._chosen), lane


_UNDER_WAY = 256


class _Asked(NamedTuple):
    """A request on its way: the history it is of, and the view that the model is sent of it."""

    history: list[ModelMessage]
    view: View
    tools: int


class QuireCapability(AbstractCapability[Any]):
    """Lets the model see a view within the budget, while the run's message history stays whole.

    `where` is a path, a URL or a storage: every conversation then has a context of its own, named by the run's
    `conversation_id`. Or it is a context that is open already: then the agent serves one conversation. `tools` says
    which of quire's tools the model gets: all, none, or those named. `view` are the options it is rendered with; the
    others are those of `quire.open`.
    """

    def __init__(
        self,
        where: Where,
        *,
        tools: bool | Sequence[str] = True,
        view: RenderOptions | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._shelf = Shelf[ModelMessage](where, parse, printed, **options)
        self._view = view
        self._tools = tools
        self._under_way: OrderedDict[str, _Asked] = OrderedDict()
        self._firsts: WeakKeyDictionary[Followed[ModelMessage], tuple[ModelRequest, ModelRequest]]
        self._firsts = WeakKeyDictionary()
        self._counted: tuple[list[ToolDefinition], int] = ([], 0)

    def context(self, conversation_id: str = "") -> Context:
        """The context of a conversation; without an id the one that was given."""
        return self._shelf.at(conversation_id).ctx

    def close(self) -> None:
        """Release the storage, if it was opened here. Nothing is lost by not closing."""
        self._shelf.close()

    def get_toolset(self) -> AbstractToolset[Any] | None:
        """quire's tools, for the context of the run."""
        return QuireToolset(self._here, tools=self._tools) if self._tools else None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: what it works with cannot be written in a spec."""
        return None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the view instead of the whole history."""
        followed = await self._here(ctx)
        parameters = request_context.model_request_parameters
        instructions = InstructionPart.join(parameters.instruction_parts or []) or ""
        tools = self._count([*parameters.function_tools, *parameters.output_tools])
        history = list(request_context.messages)
        view, messages = await followed.lane.run(self._render, followed, history, instructions)
        self._under_way[ctx.run_id or ""] = _Asked(history, view, tools)
        while len(self._under_way) > _UNDER_WAY:  # those of runs that failed
            self._under_way.popitem(last=False)
        return replace(request_context, messages=messages)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Take in the answer and what it cost."""
        asked = self._under_way.pop(ctx.run_id or "", None)
        if asked is not None and response.state == "complete":
            followed = await self._here(ctx)
            await followed.lane.run(self._take, followed, asked, response)
        return response

    def _count(self, tools: list[ToolDefinition]) -> int:
        """The tokens of the schemas sent beside the view, counted once for a list of tools."""
        counted = self._counted
        if counted[0] != tools:
            schemas = [
                {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
                for tool in tools
            ]
            counted = self._counted = (tools, count_tools(schemas))
        return counted[1]

    async def _here(self, ctx: RunContext[Any]) -> Followed[ModelMessage]:
        if self._shelf.given is not None:
            return await self._shelf.reach("")
        if ctx.conversation_id is None:
            raise InvalidOperation("This run has no conversation_id: give one to run(), or an open context to quire.")
        return await self._shelf.reach(ctx.conversation_id)

    def _render(
        self, followed: Followed[ModelMessage], history: list[ModelMessage], instructions: str
    ) -> tuple[View, list[ModelMessage]]:
        prompts, items = self._without_prompts(followed, history)
        prompt = "\n\n".join([*(part.content for part in prompts), *([instructions] if instructions else [])])
        with followed.lock:
            view = followed.shown(prompt, items, self._view)
            messages = shown(followed.follower, view, items)
        leading = takewhile(lambda message: message.role == "system", view.messages)
        added = [SystemPromptPart(message.text) for message in leading if message.text != prompt]
        if prompts or added:
            messages.insert(0, ModelRequest(parts=[*prompts, *added]))
        if not (messages and isinstance(messages[-1], ModelRequest)):  # the last one said nothing of its own
            messages.append(items[-1])
        return view, messages

    def _take(self, followed: Followed[ModelMessage], asked: _Asked, response: ModelResponse) -> None:
        with followed.lock:
            followed.follower.follow([*self._without_prompts(followed, asked.history)[1], response])
            usage = response.usage
            told = {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            }
            with suppress(InvalidValue, Conflict):  # a figure that makes no sense is no reason to fail
                followed.ctx.report_usage(told, response.model_name, tools=asked.tools, view=asked.view)

    def _without_prompts(
        self, followed: Followed[ModelMessage], history: list[ModelMessage]
    ) -> tuple[list[SystemPromptPart], list[ModelMessage]]:
        """The prompts a history begins with, which may change from run to run, and the history without them."""
        first = history[0]
        prompts = list(_prompts(first)) if isinstance(first, ModelRequest) else []
        if not prompts or not isinstance(first, ModelRequest):
            return [], history
        known, rest = self._firsts.get(followed, (None, first))
        if known is not first or len(rest.parts) + len(prompts) != len(first.parts):
            rest = replace(first, parts=first.parts[len(prompts) :])
            self._firsts[followed] = (first, rest)
        return prompts, [rest, *history[1:]]


def _prompts(request: ModelRequest) -> Iterator[SystemPromptPart]:
    for part in request.parts:
        if not isinstance(part, SystemPromptPart):
            return
        yield part
