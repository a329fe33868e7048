"""Use Anthropic's memory tool with a context as its backend: files are pages, and every command can be undone."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from tempfile import TemporaryDirectory
from threading import Thread

from anthropic import Anthropic

import quire
from quire.adapters.anthropic import QuireMemoryTool, complete


class Scripted(BaseHTTPRequestHandler):
    """Replaces a real endpoint: it writes the user's text to a file and then reports that."""

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"][-1]
        block = {"type": "text", "text": f"Done: {said.get('content')}"}
        if said["type"] == "text":
            note = {"command": "create", "path": "/memories/taste.md", "file_text": said["text"] + "\n"}
            block = {"type": "tool_use", "id": "t1", "name": "memory", "input": note}
        usage = {"input_tokens": 100, "output_tokens": 10}
        answer = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": [block], "usage": usage}
        self.send_response_only(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = HTTPServer(("127.0.0.1", 0), Scripted)
Thread(target=server.serve_forever, daemon=True).start()
client = Anthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
with TemporaryDirectory() as folder, quire.open(f"{folder}/agent.db", budget=8_000) as ctx:
    memory = QuireMemoryTool(ctx)
    ctx.user("I like my coffee black. 我喜欢黑咖啡。")
    reply = complete(client, ctx, model="claude-sonnet-5", max_tokens=500, tools=[memory])
    print("The model:", reply.content[0].text)
    print(memory.call({"command": "view", "path": "/memories/taste.md"}))
    print("Found:", ctx.find("咖啡", segment="mem")[0].snippet)
