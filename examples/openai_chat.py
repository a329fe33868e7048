"""Use a model with chat completions far beyond its budget: one function call runs a turn with its tool calls."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from tempfile import TemporaryDirectory
from threading import Thread

from openai import OpenAI

import quire
from quire.adapters.openai import complete


class Scripted(BaseHTTPRequestHandler):
    """Replaces a real endpoint: it searches for the subject of the user's question, then answers."""

    def do_POST(self):
        last = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]
        message = {"role": "assistant", "content": f"I see: {last['content'][:80]}"}
        if "code" in last["content"] and last["role"] == "user":
            call = {"name": "find", "arguments": json.dumps({"query": "opens the vault"})}
            message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"message": message}]}
        self.send_response_only(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = HTTPServer(("127.0.0.1", 0), Scripted)
Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")

texts = ["KESTREL-4711 opens the vault.", *(f"Note {n}. " * 60 for n in range(30)), "Which code opens the vault?"]
with TemporaryDirectory() as folder, quire.open(f"{folder}/agent.db", budget=2_500) as ctx:
    for text in texts:
        ctx.user(text)
        reply = complete(client, ctx, model="gpt-5")
    print(len(ctx.messages()), "messages are stored; the model got", ctx.render())
    print("The model:", reply.choices[0].message.content)
