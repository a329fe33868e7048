"""Real clients of the gateway: Claude Code 2.1.328, Codex 0.169, OpenCode 1.18.33, Qwen Code 0.24.4, Aider 0.86.2.

What these versions send, seen with the strict provider:

- Claude Code: system messages stand inside the conversation, after the first message and after each result. The last
  message is a system message with two blocks; its second block ("First privately list …") is
  gone in the next request, and the first one becomes a string. System messages can have `output_config`, and then
  even no content. Sub-agents run in the background, at the same time as the parent. `/compact` sends the whole history
  with the instruction inside the last user message; afterwards the history starts with a summary, a system message
  without content, and the last answer.
- Codex with its default model: tools are the first item of `input` (`additional_tools`), instructions are developer
  messages after it, and there are no `tools` and no `instructions`. A call is a `custom_tool_call` with JavaScript.
  An answer that is sent back has `internal_chat_message_metadata_passthrough` in addition.
- OpenCode: a prompt with spaces is sent in quotation marks. A title call without tools has the same session id.
"""
