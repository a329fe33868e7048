"""The command completion: shell scripts that complete commands, options and their values.

They are written from the parsers themselves, so that a new option needs no change here and a completion starts no
Python process.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.cli.command import Command, build_parser
from quire.cli.commands import ROWS, load
from quire.cli.terminal import Output

SHELLS = ("bash", "zsh", "fish")


class OptionSpec(NamedTuple):
    """An option of a command: its spellings, its help, whether it takes a value, and its choices."""

    words: tuple[str, ...]
    about: str
    value: bool
    choices: tuple[str, ...]


class CommandSpec(NamedTuple):
    """A command with its summary and options."""

    name: str
    summary: str
    options: tuple[OptionSpec, ...]


def list_commands() -> list[CommandSpec]:
    """Return every command with its options."""
    return [
        CommandSpec(row.name, row.summary, tuple(_options(build_parser(row.name, row.summary, load(row)))))
        for row in ROWS.values()
    ]


def _options(parser: argparse.ArgumentParser) -> Iterator[OptionSpec]:
    for action in parser._actions:
        if action.option_strings:
            about = (action.help or "") % {**vars(action), "prog": parser.prog}
            choices = tuple(map(str, action.choices or ()))
            yield OptionSpec(tuple(action.option_strings), about, action.nargs != 0, choices)


def _bash(commands: Sequence[CommandSpec]) -> Iterator[str]:
    yield "# quire completion bash > /etc/bash_completion.d/quire, or: source <(quire completion bash)"
    yield "_quire() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(command.name for command in commands)}" -- "$word")); return'
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $before" in'
    for command in commands:
        for option in command.options:
            if option.choices:
                patterns = "|".join(f'"{command.name} {word}"' for word in option.words)
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
    yield "    esac"
    yield '    [[ "$word" == -* ]] || { COMPREPLY=($(compgen -f -- "$word")); return; }'
    yield '    case "${COMP_WORDS[1]}" in'
    for command in commands:
        words = " ".join(word for option in command.options for word in option.words)
        yield f'        {command.name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
    yield "    esac"
    yield "}"
    yield "complete -o filenames -F _quire quire"


def _zsh(commands: Sequence[CommandSpec]) -> Iterator[str]:
    yield "#compdef quire"
    yield "# quire completion zsh > _quire, in a directory of your fpath"
    yield "_quire() {"
    yield "    local -a commands"
    yield "    commands=("
    yield from (f"        {_quote(f'{command.name}:{command.summary}')}" for command in commands)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield '    case "$words[2]" in'
    for command in commands:
        specs = " ".join(_quote(spec) for option in command.options for spec in _zsh_specs(option))
        yield f"        {command.name}) _arguments {specs} '*:file:_files' ;;"
    yield "    esac"
    yield "}"
    yield '_quire "$@"'


def _zsh_specs(option: OptionSpec) -> Iterator[str]:
    about = option.about.replace("[", "(").replace("]", ")").replace(":", " ")
    value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files" if option.value else ""
    yield from (f"{word}[{about}]{value}" for word in option.words)


def _fish(commands: Sequence[CommandSpec]) -> Iterator[str]:
    yield "# quire completion fish > ~/.config/fish/completions/quire.fish"
    for command in commands:
        yield f"complete -c quire -n __fish_use_subcommand -f -a {command.name} -d {_quote(command.summary)}"
    for command in commands:
        for option in command.options:
            words = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.words)
            value = f" -x -a {_quote(' '.join(option.choices))}" if option.choices else " -r" if option.value else ""
            condition = f"'__fish_seen_subcommand_from {command.name}'"
            yield f"complete -c quire -n {condition} {words}{value} -d {_quote(option.about)}"


def _quote(text: str) -> str:
    quote = "'"
    return f"'{text.replace(quote, quote + chr(92) + quote + quote)}'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def _completion(options: argparse.Namespace, out: Output) -> None:
    lines = list(_SCRIPTS[options.shell](list_commands()))
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
