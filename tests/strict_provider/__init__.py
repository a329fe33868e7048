"""A strict provider for tests: the rules of Anthropic Messages, OpenAI chat completions and OpenAI Responses.

`StrictProvider` is an HTTP server for the real SDKs. `check_request` applies the same rules to a body without HTTP.
Each rule has a name, the text of the real error, and the document that it comes from.
"""

from tests.strict_provider.cache import PrefixCache
from tests.strict_provider.replies import Call, Fault, Reply, Script, make_script
from tests.strict_provider.requests import Api, Body, Problem, Request, State
from tests.strict_provider.rules import RULES, Rule, check_request
from tests.strict_provider.server import StrictProvider

__all__ = [
    "RULES",
    "Api",
    "Body",
    "Call",
    "Fault",
    "PrefixCache",
    "Problem",
    "Reply",
    "Request",
    "Rule",
    "Script",
    "State",
    "StrictProvider",
    "check_request",
    "make_script",
]
