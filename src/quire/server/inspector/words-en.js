// English. `{n}` and the like are filled in; a key with `_one` is for exactly one.

export default {
  skip: "Skip to content", library: "Library", crumbs: "Where you are", language: "Language", help: "Keys", close: "Close",
  cancel: "Cancel", save: "Save", again: "Try again", undo: "Undo", copy: "Copy", copied: "Copied.", "copy.refused": "The browser did not allow copying.",
  loading: "Loading…", unnamed: "(no name)", pinned: "pinned", undone: "undone", tokens: "tokens", seq: "seq", more: "and {n} more",
  live: "live", "live.down": "reconnecting", theme: "Theme: {value}", "theme.auto": "as the system", "theme.light": "light", "theme.dark": "dark",
  "time.now": "just now",
  "error.unreachable": "The server cannot be reached. Is it still running?", "error.status": "The server answered with status {n}.",
  "token.title": "This library is locked", "token.label": "Token", "token.enter": "Open",
  "token.lead": "Paste the token that the server printed when it started, or open the address it printed.",
  "token.wrong": "The server did not take this token. Paste the one that it printed when it started.",

  "n.tokens": "{n} tokens", "n.tokens_one": "1 token", "n.pages": "{n} pages", "n.pages_one": "1 page", "n.messages": "{n} messages", "n.messages_one": "1 message",
  "figures.pages": "{n} pages", "figures.pages_one": "1 page", "figures.tokens": "{n} tokens in the book", "figures.budget": "budget {n}",

  "library.filter": "Names that begin with…", "library.count": "{n} contexts", "library.count_one": "1 context",
  "library.none": "No context has a name that begins like this.", "library.empty": "This library is empty. An agent that writes to it will show up here.",

  tabs: "Screens", "tab.window": "Window", "tab.pages": "Pages", "tab.model": "What the model sees", "tab.compare": "Compare", "tab.timeline": "Timeline", "tab.search": "Search", "tab.apps": "Live windows",
  panel: "Page",

  budget: "Budget", "budget.exact": "Budget in tokens", "budget.own": "The context's own budget", "budget.reset": "Reset",
  map: "What fills the window", "map.words": "What fills the window: {used} of {budget} tokens, {share}",
  "gauge.of": "of {n} tokens", "gauge.free": "{n} free", "gauge.sum": "{n} of {budget} tokens",
  "cache.share": "{n} tokens ({share}) begin as the view before did: read from the cache.", "cache.where": "Where it breaks",
  legend: "What fills it", "legend.free": "Free", largest: "Largest in the window",
  changes: "At {n} tokens", "changes.sum": "{n} pages would be shown otherwise, {tokens} tokens.", "changes.sum_one": "1 page would be shown otherwise, {tokens} tokens.", "changes.none": "Nothing would change.",

  "how.whole": "whole", "how.line": "one line", "how.clipped": "clipped", "how.recalled": "recalled", "how.window": "window", "how.preamble": "preamble", "how.system": "prompt", "how.folded": "folded", "how.exchange": "message", "how.open": "open", "how.out": "not shown", "how.no": "not shown", "how.budget": "budget line", "how.frame": "headings",
  "shown.whole": "Shown whole.", "shown.line": "One line only.", "shown.clipped": "Clipped.", "shown.recalled": "Recalled.", "shown.open": "Open.", "shown.no": "Not shown.",

  "pages.cold": "Show the cold archive", "pages.hint": "Arrows move, Enter opens, e and h expand and hide, ? lists all keys", "pages.none": "No pages yet.",
  "lifecycle.active": "active", "lifecycle.hot": "archived", "lifecycle.cold": "cold archive", "visibility.expanded": "open", "visibility.hidden": "one line",
  "permission.read_only": "read only", "permission.read_write": "read and write", "permission.system_managed": "system managed", "permission.private": "private",
  "kind.detail": "page", "kind.contents": "folder",
  "form.text": "text", "form.summary": "summary", "form.user": "user message", "form.assistant": "assistant message", "form.system": "system message", "form.tool": "tool result", "form.chapter": "chapter", "form.window": "live window",

  "op.expand": "Expand", "op.hide": "Hide", "op.pin": "Pin", "op.unpin": "Unpin", "op.archive": "Archive", "op.cold": "Archive cold", "op.restore": "Restore", "op.recall": "Recall", "op.move": "Move…", "op.edit": "Edit…", "op.remove": "Remove…",
  "done.expand": "{page} is open.", "done.hide": "{page} is one line now.", "done.pin": "{page} is pinned.", "done.unpin": "{page} is not pinned any more.", "done.archive": "{page} is archived.", "done.cold": "{page} is in the cold archive.", "done.restore": "{page} is back in the window.", "done.recall": "{page} is back in the tree.", "done.move": "{page} was moved.", "done.edit": "{page} was changed.", "done.remove": "{page} was removed.", "done.undo": "Entry {seq} was undone.", "done.rollback": "Back at entry {seq}.",
  "move.title": "Move {page}", "move.target": "To the folder", "move.target.hint": "The index of a folder, like usr-0", "move.before": "Before the page", "move.before.hint": "The index of one of its children; empty: at the end",
  "edit.title": "Edit {page}", "field.name": "Name", "field.description": "Summary", "field.detail": "Text",
  "remove.title": "Remove {page}?", "remove.folder": "The folder goes with everything below it. It can be undone.", "remove.leaf": "It can be undone.",
  path: "Folders above", "in.tree": "In the tree", "in.history": "Its history", why: "Why is it shown like this?", "why.call": "To change that:",
  "fact.segment": "Segment", "fact.permission": "The agent may", "fact.state": "State", "fact.form": "Kind", "fact.tokens": "Tokens", "fact.children": "Children", "fact.created": "Created", "fact.updated": "Changed",
  "content.messages": "Messages", "content.detail": "Text", "content.empty": "(empty)", "content.more": "Show more: {n} characters are left",
  "span.title": "A fold that would be made", "span.words": "At this budget these pages would stand in one line. It is imagined and no page of its own; these are the first and the last that it stands for.",

  "model.form": "Form", "model.as": "Shown as", "model.read": "Text", "model.cached": "{share} cached",
  break: "The cache breaks here.", "break.first": "There was no view before this one.", "break.all": "All of it is cached.", "break.none": "Nothing changed since the view before.",
  "role.system": "System", "role.developer": "Developer", "role.user": "User", "role.assistant": "Assistant", "role.tool": "Tool result",
  "block.call": "calls", "block.result": "result", "block.other": "",

  "compare.left": "Before", "compare.right": "After", "compare.run": "Compare", "compare.changed": "{n} messages differ", "compare.changed_one": "1 message differs", "compare.same": "The same in every message", "compare.shared": "the first {n} are the same: that much stays cached", "compare.pages": "{n} pages are shown otherwise", "compare.pages_one": "1 page is shown otherwise", "compare.run.same": "{n} messages are the same", "compare.run.same_one": "1 message is the same",
  "diff.added": "new", "diff.removed": "gone", "diff.changed": "changed",

  "timeline.operation": "Every operation", "timeline.page": "Of one page, like usr-7", "timeline.none": "No entry is like this.", checkpoint: "Checkpoint", "checkpoint.title": "Name this moment", "checkpoint.lead": "A name for the state as it is now, to come back to.", "checkpoint.name": "Name",
  fork: "Fork", "fork.title": "Fork this context", "fork.title.at": "Fork from entry {seq}", "fork.lead": "Another context that begins as this one was; both go on by themselves.", "fork.name": "Name of the new context",
  "entry.undo": "Undo this", "entry.rollback": "Roll back to here…", "entry.fork": "Fork from here…", "entry.compare": "What it changed", "entry.pages": "{n} pages", "entry.pages_one": "1 page",
  "rollback.title": "Roll back to entry {seq}?", "rollback.lead": "{n} entries would be taken back in one step. It can be undone.", "rollback.lead_one": "1 entry would be taken back. It can be undone.", "rollback.confirm": "Roll back", "rollback.messages": "Messages", "rollback.goes": "would go", "rollback.comes": "would come back", "rollback.changes": "would change",
  "operation.fold": "Fold", "operation.expand": "Expand", "operation.hide": "Hide", "operation.move_page": "Move", "operation.archive": "Archive", "operation.restore": "Restore", "operation.recall": "Recall", "operation.undo": "Undo", "operation.rollback": "Rollback", "operation.batch_start": "Batch begins", "operation.batch_end": "Batch taken back", "operation.batch_commit": "Batch kept", "operation.checkpoint": "Checkpoint", "operation.user": "User message", "operation.assistant": "Assistant message", "operation.tool": "Tool result", "operation.system": "System prompt", "operation.add": "Message", "operation.add_page": "New page", "operation.update_page": "Edit", "operation.set_detail": "New text", "operation.remove_page": "Remove", "operation.pin": "Pin", "operation.unpin": "Unpin", "operation.import": "Import", "operation.import_messages": "Import", "operation.create": "Created", "operation.open": "Created", "operation.add_segment": "New segment", "operation.compress": "Compress", "operation.delete": "Delete message", "operation.replace": "Replace message", "operation.insert": "Insert message", "operation.window_open": "Window opened", "operation.window_act": "Window action", "operation.window_close": "Window closed", "operation.fork": "Fork", "operation.create_detail_page": "New page", "operation.create_contents_page": "New folder",

  "search.placeholder": "Search every page, archived ones too", "search.segment": "Every segment", "search.lifecycle": "Every state", "search.count": "{n} pages", "search.count_one": "1 page", "search.none": "Nothing was found.",
  "apps.none": "No live window is open here.", "apps.important": "important", "apps.closed": "closed", "apps.done": "Done.", "apps.page": "Its page",

  "keys.title": "Keys", "keys.tabs": "Go to a screen", "keys.search": "Search", "keys.budget": "Smaller or larger budget", "keys.library": "Library", "keys.theme": "System, light, dark", "keys.close": "Close the panel", "keys.tree": "Move; open and shut folders", "keys.open": "Show the page", "keys.expand": "Expand, hide", "keys.pin": "Pin, unpin", "keys.archive": "Archive; restore or recall", "keys.move": "Move", "keys.why": "Why is it shown like this",
};
