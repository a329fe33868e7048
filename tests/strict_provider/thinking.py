"""The check of the thinking that a request sends back."""

from typing import NamedTuple

from tests.strict_provider.requests import BINDING_BETA, Problem, Request, State
from tests.strict_provider.signatures import (
    Chain,
    Found,
    Seal,
    digest_system,
    digest_text,
    digest_tools,
    find_thinking,
    read_seal,
)

_DROP_HINT = 'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'


class Judgement(NamedTuple):
    """The result for all thinking blocks of a request.

    `tampered` and `mismatch` are the first block with a false signature and the first with another prefix. `dropped`
    has the path and the reason of each block that the model does not read. `last` is the identity of the last block
    that it reads.
    """

    tampered: Found | None
    mismatch: tuple[Found, str] | None
    dropped: list[tuple[str, str]]
    last: str


def judge_thinking(request: Request, state: State) -> Judgement:
    """Check the thinking blocks of a request in order.

    The blocks that are sent are a run of the blocks that were made, without a gap: each one names the one before it.
    """
    found, _ = find_thinking(request)
    mismatch: tuple[Found, str] | None = None
    dropped: list[tuple[str, str]] = []
    last = ""
    for each in found:
        block = each.block
        seal = read_seal(block.get("signature") or block.get("data") or block.get("encrypted_content"), state)
        if seal is None or (request.api == "anthropic" and seal.text != digest_text(block)):
            return Judgement(each, None, dropped, last)
        if seal.model != request.body.get("model"):
            dropped.append((each.path, "model_binding_mismatch"))
        elif change := _find_change(request, state, each.chain, seal, last):
            mismatch = mismatch or (each, change)
            dropped.append((each.path, "prefix_binding_mismatch"))
        else:
            last = seal.identity
    return Judgement(None, mismatch, dropped, last)


def _find_change(request: Request, state: State, chain: Chain, seal: Seal, last: str) -> str:
    """Return the sentence on what changed before a block; "" if nothing did."""
    if seal.system != digest_system(request.body):
        return "The `system` prompt differs from the one this block was created with."
    if seal.tools != digest_tools(request.body):
        return "The `tools` list differs from the one this block was created with."
    if seal.messages != chain.digest:
        made = state.prefixes.get(seal.identity, [])
        pairs = enumerate(zip(made, chain.digests, strict=False))
        first = next((n for n, (old, new) in pairs if old != new), min(len(made), len(chain.digests)))
        return f"The messages before this block differ from the ones it was created with, from message {first} on."
    if last and seal.previous != last:
        return "The `thinking` block that preceded this one when it was created is missing from this request."
    return ""


def refuse_mismatch(judgement: Judgement, request: Request) -> Problem | None:
    """Return the error for a block with another prefix, unless the request asks to drop such blocks."""
    if judgement.mismatch is None or drops_blocks(request):
        return None
    found, change = judgement.mismatch
    needs = f" That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header."
    beta = "" if BINDING_BETA in request.betas else needs
    kind = found.block["type"]
    start = f"{found.path}: Invalid `signature` in `{kind}` block. The block is bound to a different conversation."
    return Problem(f"{start} {_DROP_HINT}{beta} {change}")


def drops_blocks(request: Request) -> bool:
    """Return whether the request asks to drop thinking blocks with another prefix."""
    binding = (request.body.get("thinking") or {}).get("block_binding") or {}
    return bool(binding.get("prefix_mismatch_behavior") == "drop_block")
