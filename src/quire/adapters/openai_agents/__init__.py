"""OpenAI Agents SDK: a session without a limit of length, and a filter that sends the model what fits.

    session = QuireSession("support-42", "agents.db", budget=8_000)
    config = RunConfig(call_model_input_filter=session.model_input_filter)
    result = await Runner.run(agent, "Hello!", session=session, run_config=config)

The session's list is the conversation of a context: items are returned as they were added.
"""

from quire.adapters.openai_agents.session import QuireSession, function_tools

__all__ = ["QuireSession", "function_tools"]
