"""Call a model far beyond the budget. Without OPENAI_API_KEY a stub answers, offline."""

import os

from openai import OpenAI

import quire
from quire.adapters.openai import TurnOptions, complete
from quire.testing import StubProvider

stub = None if "OPENAI_API_KEY" in os.environ else StubProvider()  # it answers with a sentence of the request
client = OpenAI(base_url=f"{stub.url}/v1", api_key="none") if stub else OpenAI()
ctx = quire.open("memory:", "ada", budget=2_000)  # or "agent.db", a SQLite file
notes = [f"Note {number}: shelf {number} holds {number * 7} parcels for Leipzig." for number in range(60)]
for text in ["The code of the vault is KESTREL-4711.", *notes, "What is the code of the vault?"]:
    ctx.user(text)
    reply = complete(client, ctx, model="gpt-5-mini", options=TurnOptions(render={"recall": True}))
print("The model:", reply.choices[0].message.content)
print(f"{len(ctx.messages())} messages are stored; the last request had {ctx.render().tokens:,} tokens")
