"""The fields that each API knows, as the parameter types of the SDKs list them; a test compares both."""

from collections.abc import Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERSIONS = {"anthropic": "2.10.0", "openai": "3.51.0"}
"""The versions of the SDKs with exactly these fields. A newer version may have more."""
ANTHROPIC_REQUEST = _names(
    "cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier "
    "speed stop_sequences stream system thinking tool_choice tools user_profile_id temperature top_k top_p"
)
ANTHROPIC_BETA = _names(
    "billing_policy compaction context_management fallback_credit_token fallbacks mcp_servers thread"
)
"""Fields of a request with a beta header."""
TURN_CONTROL = "per-turn-control-2026-07-01"
"""The beta in which a system message has `output_config`. Claude Code sends it."""
ANTHROPIC_BLOCKS: Mapping[str, frozenset[str]] = {
    "text": _names("cache_control citations text type"),
    "thinking": _names("signature thinking type"),
    "redacted_thinking": _names("data type"),
    "tool_use": _names("cache_control caller id input name toolset_name type"),
    "tool_result": _names("cache_control content is_error tool_use_id toolset_name type"),
    "image": _names("cache_control source transformations type"),
    "document": _names("cache_control citations context source title type"),
    "search_result": _names("cache_control citations content source title type"),
}

CHAT_REQUEST = _names(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages "
    "metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier "
    "stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
CHAT_MESSAGES: Mapping[str, frozenset[str]] = {
    "system": _names("content name role"),
    "developer": _names("content name role"),
    "user": _names("content name role"),
    "assistant": _names("audio content function_call name refusal role tool_calls"),
    "tool": _names("content role tool_call_id"),
    "function": _names("content name role"),
}

RESPONSES_REQUEST = _names(
    "access_programs background context_management conversation image include input instructions max_output_tokens "
    "max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key "
    "prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options "
    "temperature text tool_choice tools top_logprobs top_p truncation user"
)
RESPONSES_UNDOCUMENTED = _names("client_metadata internal_chat_message_metadata_passthrough")
"""Fields of a request and of an item that Codex sends, and that the SDK does not list."""
RESPONSES_ITEMS: Mapping[str, frozenset[str]] = {
    "message": _names("content id phase role status type"),
    "function_call": _names("arguments async call_id caller id name namespace status type"),
    "function_call_output": _names("call_id caller id name namespace output status type"),
    "custom_tool_call": _names("async call_id caller id input name namespace type"),
    "custom_tool_call_output": _names("call_id caller id output type"),
    "reasoning": _names("content encrypted_content id status summary type"),
}
"""The fields of the common items; fields of other items are not checked."""
