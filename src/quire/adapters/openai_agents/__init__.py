"""OpenAI Agents SDK: a session that forgets nothing, and a filter that sends the model what fits.

    session = QuireSession("support-42", "agents.db", budget=8_000)
    config = RunConfig(call_model_input_filter=session.model_input_filter)
    result = await Runner.run(agent, "Hello!", session=session, run_config=config)

The conversation of a context is the session's list: items go back as they came. `clear_session` is held for a moment
and carried out in one commit with the `add_items` that follows, so a process that dies between the two loses nothing.
"""

from quire.adapters.openai_agents.session import QuireSession, function_tools

__all__ = ["QuireSession", "function_tools"]
