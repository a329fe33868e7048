"""The command completion: shell scripts that complete commands, options and their values.

They are written from the parsers themselves, so that a new option needs no change here and a completion starts no
Python process.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from quire.cli.command import argument, build_parser, command
from quire.cli.commands import ROWS, load
from quire.cli.terminal import Output

_Options = Mapping[str, Sequence[argparse.Action]]
"""The options of each command."""


def list_options() -> _Options:
    """Return the options of every command with one word."""
    parsers = {name: build_parser(name, row.summary, load(row)) for name, row in ROWS.items() if " " not in name}
    return {name: [action for action in parsers[name]._actions if action.option_strings] for name in parsers}


def _bash(options: _Options) -> Iterator[str]:
    yield "# quire completion bash > /etc/bash_completion.d/quire, or: source <(quire completion bash)"
    yield "_quire() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(options)}" -- "$word")); return'
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $before" in'
    for name, actions in options.items():
        for action in actions:
            if action.choices:
                patterns = "|".join(f'"{name} {word}"' for word in action.option_strings)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{_choices(action)}" -- "$word")); return ;;'
    yield "    esac"
    yield '    [[ "$word" == -* ]] || { COMPREPLY=($(compgen -f -- "$word")); return; }'
    yield '    case "${COMP_WORDS[1]}" in'
    for name, actions in options.items():
        words = " ".join(word for action in actions for word in action.option_strings)
        yield f'        {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
    yield "    esac"
    yield "}"
    yield "complete -o filenames -F _quire quire"


def _zsh(options: _Options) -> Iterator[str]:
    yield "#compdef quire"
    yield "# quire completion zsh > _quire, in a directory of your fpath"
    yield "_quire() {"
    yield "    local -a commands"
    yield "    commands=("
    yield from (f"        {quote(f'{row.name}:{row.summary}')}" for row in (ROWS[name] for name in options))
    yield "    )"
    yield "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield '    case "$words[2]" in'
    for name, actions in options.items():
        specs = " ".join(quote(spec) for action in actions for spec in _zsh_specs(action))
        yield f"        {name}) _arguments {specs} '*:file:_files' ;;"
    yield "    esac"
    yield "}"
    yield '_quire "$@"'


def _zsh_specs(action: argparse.Action) -> Iterator[str]:
    about = _help(action).replace("[", "(").replace("]", ")").replace(":", " ")
    value = f":value:({_choices(action)})" if action.choices else ":value:_files" if action.nargs != 0 else ""
    yield from (f"{word}[{about}]{value}" for word in action.option_strings)


def _fish(options: _Options) -> Iterator[str]:
    yield "# quire completion fish > ~/.config/fish/completions/quire.fish"
    for row in (ROWS[name] for name in options):
        yield f"complete -c quire -n __fish_use_subcommand -f -a {row.name} -d {quote(row.summary)}"
    for name, actions in options.items():
        for action in actions:
            spellings = action.option_strings
            words = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in spellings)
            value = f" -x -a {quote(_choices(action))}" if action.choices else " -r" if action.nargs != 0 else ""
            condition = f"'__fish_seen_subcommand_from {name}'"
            yield f"complete -c quire -n {condition} {words}{value} -d {quote(_help(action))}"


def _help(action: argparse.Action) -> str:
    return (action.help or "") % vars(action)


def _choices(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


@command(
    argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=f"one of {', '.join(SHELLS)}"),
    examples=(
        "source <(quire completion bash)",
        "quire completion zsh > ~/.zfunc/_quire",
        "quire completion fish > ~/.config/fish/completions/quire.fish",
    ),
)
def run_completion(options: argparse.Namespace, out: Output) -> None:
    lines = list(SHELLS[options.shell](list_options()))
    out.result({"shell": options.shell, "script": "\n".join(lines) + "\n"}, *lines)
