"""Completion for shells: commands, options, and the words an option takes."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.cli.command import Command, parser_of
from quire.cli.commands import ROWS, load
from quire.cli.out import Out

SHELLS = ("bash", "zsh", "fish")


class Option(NamedTuple):
    """An option of a command: its spellings, what it does, whether a value follows, and which if they are few."""

    words: tuple[str, ...]
    about: str
    value: bool
    choices: tuple[str, ...]


class Known(NamedTuple):
    """A command as a shell knows it."""

    name: str
    summary: str
    options: tuple[Option, ...]


def known_commands() -> list[Known]:
    """Every command with its options."""
    return [
        Known(row.name, row.summary, tuple(_options(parser_of(row.name, row.summary, load(row)))))
        for row in ROWS.values()
    ]


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:
        if action.option_strings:
            about = (action.help or "") % {**vars(action), "prog": parser.prog}
            choices = tuple(map(str, action.choices or ()))
            yield Option(tuple(action.option_strings), about, action.nargs != 0, choices)


def _bash(commands: Sequence[Known]) -> Iterator[str]:
    yield "# quire completion bash > /etc/bash_completion.d/quire, or: source <(quire completion bash)"
    yield "_quire() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(known.name for known in commands)}" -- "$word")); return'
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $before" in'
    for known in commands:
        for option in known.options:
            if option.choices:
                patterns = "|".join(f'"{known.name} {word}"' for word in option.words)
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
    yield "    esac"
    yield '    [[ "$word" == -* ]] || { COMPREPLY=($(compgen -f -- "$word")); return; }'
    yield '    case "${COMP_WORDS[1]}" in'
    for known in commands:
        words = " ".join(word for option in known.options for word in option.words)
        yield f'        {known.name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
    yield "    esac"
    yield "}"
    yield "complete -o filenames -F _quire quire"


def _zsh(commands: Sequence[Known]) -> Iterator[str]:
    yield "#compdef quire"
    yield "# quire completion zsh > a folder of your fpath, as _quire"
    yield "_quire() {"
    yield "    local -a commands"
    yield "    commands=("
    yield from (f"        {_quoted(f'{known.name}:{known.summary}')}" for known in commands)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield '    case "$words[2]" in'
    for known in commands:
        specs = " ".join(_quoted(spec) for option in known.options for spec in _zsh_specs(option))
        yield f"        {known.name}) _arguments {specs} '*:file:_files' ;;"
    yield "    esac"
    yield "}"
    yield '_quire "$@"'


def _zsh_specs(option: Option) -> Iterator[str]:
    about = option.about.replace("[", "(").replace("]", ")").replace(":", " ")
    taken = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files" if option.value else ""
    yield from (f"{word}[{about}]{taken}" for word in option.words)


def _fish(commands: Sequence[Known]) -> Iterator[str]:
    yield "# quire completion fish > ~/.config/fish/completions/quire.fish"
    for known in commands:
        yield f"complete -c quire -n __fish_use_subcommand -f -a {known.name} -d {_quoted(known.summary)}"
    for known in commands:
        for option in known.options:
            words = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.words)
            taken = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r" if option.value else ""
            yield (
                f"complete -c quire -n '__fish_seen_subcommand_from {known.name}' {words}{taken}"
                f" -d {_quoted(option.about)}"
            )


def _quoted(text: str) -> str:
    quote = "'"
    return f"'{text.replace(quote, quote + chr(92) + quote + quote)}'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def _completion(options: argparse.Namespace, out: Out) -> None:
    lines = list(_SCRIPTS[options.shell](known_commands()))
    if out.json:
        out.value({"shell": options.shell, "script": "\n".join(lines) + "\n"})
        return
    for line in lines:
        out.line(line)


COMMANDS = {
    "completion": Command(
        _completion,
        _add,
        (
            "source <(quire completion bash)",
            "quire completion zsh > ~/.zfunc/_quire",
            "quire completion fish > ~/.config/fish/completions/quire.fish",
        ),
    ),
}
