"""The comparison: the floor and quire as peers, a replay, the registry, and cells that fail."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.accounting import broken, tokens
from bench.peers.adapters.floor import Floor, TrigramIndex, WordIndex
from bench.peers.adapters.nothing import Nothing
from bench.peers.adapters.quire_context import Quire, QuireSearch
from bench.peers.corpora import Talk
from bench.peers.environments import REQUIREMENTS, Environment
from bench.peers.peer import Peer, Searcher, Setting
from bench.peers.processes import ERROR, finished
from bench.peers.registry import FLOOR, OURS, PEERS, SEARCHERS, chosen
from bench.peers.run import QUICK, Bench
from bench.peers.workloads.life import Life, _replay
from bench.peers.workloads.search import has_all
from bench.traces import Values

ADAPTERS = Path(__file__).parents[2] / "bench" / "peers" / "adapters"
PROMPT = "You answer questions."


def setting(folder: Path, session: str = "one", budget: int = 400) -> Setting:
    return Setting(folder, session, budget, PROMPT, mean=20)


def talk(turns: int) -> list[Values]:
    return [
        {"role": "assistant" if turn % 2 else "user", "content": f"第{turn}句: words enough to fill some of the budget"}
        for turn in range(turns)
    ]


@pytest.mark.parametrize("kind", [Floor, Quire])
def test_a_list_fits_breaks_no_rule_and_is_the_same_after_a_resume(kind: type[Peer], tmp_path: Path) -> None:
    peer = kind(setting(tmp_path))
    for message in talk(81):
        peer.append(peer.native(message))
    shown = peer.chat(peer.render())
    peer.close()
    assert tokens(shown) <= 400
    assert broken(shown, talk(81)[-1], budget=400) == set()
    again = kind(setting(tmp_path))
    assert again.chat(again.render()) == shown
    assert again.stored() == 81
    other = again.switch("other")
    other.fill(talk(3))
    assert other.stored() == 3
    other.close()


def test_a_replay_calls_the_model_when_it_was_its_turn_and_counts_what_it_is_sent(tmp_path: Path) -> None:
    life, messages = Life(400), talk(40)
    _replay(Nothing(setting(tmp_path)), Talk(PROMPT, messages), life)
    told = life.told()
    lists = [[setting(tmp_path).system, *messages[:end]] for end in range(1, 40, 2)]
    assert told["calls"] == len(life.seconds) == 20
    assert told["tokens"] == sum(map(tokens, lists))
    assert told["cached"] * told["tokens"] == pytest.approx(sum(map(tokens, lists[:-1])))
    assert told["over"] == sum(tokens(sent) > 400 for sent in lists) > 0
    assert told["refused"] == 0


def test_a_window_that_counts_messages_is_chosen_from_the_room_beside_the_prompt(tmp_path: Path) -> None:
    given = setting(tmp_path, budget=1_000)
    assert given.room == 1_000 - tokens([given.system])
    assert given.window == given.room // 20
    assert setting(tmp_path, budget=30).window == 4


@pytest.mark.parametrize("kind", [WordIndex, TrigramIndex, QuireSearch])
def test_a_search_gives_the_texts_it_found(kind: type[Searcher], tmp_path: Path) -> None:
    searcher = kind(tmp_path)
    searcher.take(["a bag was lost", "用户想取消航班并退款", "nothing of note"])
    (found,) = searcher.find("lost")
    assert "a bag was lost" in found
    assert len(searcher.find("退款")) == (kind is QuireSearch)  # bare FTS5 finds no word of two characters


def test_english_words_are_looked_for_whole_and_chinese_ones_anywhere() -> None:
    assert has_all("Refund: a bag was lost", "lost refund")
    assert not has_all("it was refunded", "refund")
    assert has_all("用户想取消航班并退款", "退款 取消")
    assert not has_all("用户想取消航班", "退款")
    assert has_all("改签，编号43，退款", "编号43")
    assert not has_all("改签，编号430，退款", "编号43")


def test_every_row_has_an_adapter_and_its_requirements() -> None:
    for entry in (*PEERS, *SEARCHERS):
        module, name = entry.where.split(":")
        body = ast.parse((ADAPTERS / f"{module}.py").read_text()).body
        assert name in {node.name for node in body if isinstance(node, ast.ClassDef)}
        if entry.requirements:
            pinned = (REQUIREMENTS / f"{entry.requirements}.txt").read_text()
            assert f"{entry.package}==" in pinned


def test_some_peers_can_be_chosen_and_always_stand_beside_quire_and_the_floor() -> None:
    names = [entry.name for entry in chosen("adk, strands")]
    assert {FLOOR, OURS} <= set(names)
    assert {name.split()[0] for name in names} == {"raw", "quire", "google-adk", "strands", "bare"}
    assert len(chosen()) == len(PEERS) + len(SEARCHERS)
    with pytest.raises(SystemExit, match="nobody"):
        chosen("nobody")


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("print('noise'); print('answer {\"ratio\": 2}')", {"ratio": 2}),
        ("raise ValueError('no store in /a/b.c/d')", {ERROR: "ValueError: no store in …"}),
        ("raise OSError('http://a:80/simple/ or host=a, port=1')", {ERROR: "OSError: … or host=… port=1"}),
        ("print('answer {}'); raise SystemExit(3)", {ERROR: "it ended without a word"}),
    ],
)
def test_a_cell_answers_or_says_why_not(code: str, answer: dict[str, object]) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert finished(process, limit=30) == answer


def test_a_cell_that_takes_too_long_is_ended_and_says_so() -> None:
    pipe = subprocess.PIPE
    sleeping = "import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-S", "-c", sleeping], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert finished(process, limit=0.1) == {ERROR: "not done in 0 s"}
    assert process.returncode != 0


def test_what_could_not_be_installed_is_told_without_where_it_was_looked_for(tmp_path: Path) -> None:
    why = "HTTP error 404 while getting https://packages.example/simple/strands/"
    bench = Bench(QUICK, tmp_path, {"peers": Environment(tmp_path, {"strands": why})})
    entry = next(entry for entry in PEERS if entry.requirements == "strands")
    bench.each(bench.turn, entry)
    assert [cell[ERROR] for cell in bench.sorted([entry])] == ["HTTP error 404 while getting …"]
