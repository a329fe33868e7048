// The page tree as a list of rows. Only opened folders are loaded, a block at a time.

const BLOCK = 200;
const LARGEST_BLOCK = 1000;

export class Tree {
  constructor(api) {
    this.api = api;
    this.roots = [];
    this.rows = []; // all rows that can be scrolled to, in order
    this.byIndex = new Map();
    this.cold = false; // whether cold-archived pages are shown in the folders they came from
  }

  /** Load the roots of the segments, and open those with children. */
  async start() {
    const answer = await this.api.pages({ limit: LARGEST_BLOCK });
    this.roots = answer.pages.map((page) => this.row(page, null));
    this.flatten();
    await Promise.all(this.roots.filter((row) => row.page.children > 0).map((row) => this.open(row)));
  }

  row(page, parent) {
    return { page, parent, depth: parent ? parent.depth + 1 : 0, open: false, children: null, next: null };
  }

  flatten() {
    const rows = [];
    this.byIndex.clear();
    const take = (row) => {
      rows.push(row);
      this.byIndex.set(row.page.index, row);
      if (row.open && row.children) {
        row.children.forEach(take);
        if (row.next !== null) rows.push({ more: row, depth: row.depth + 1 });
      }
    };
    this.roots.forEach(take);
    this.rows = rows;
    this.most = rows.reduce((most, row) => Math.max(most, row.page?.tokens ?? 0), 1);
  }

  placeOf(index) {
    const row = this.byIndex.get(index);
    return row ? this.rows.indexOf(row) : -1;
  }

  async open(row) {
    row.open = true;
    if (row.children === null) await this.load(row, BLOCK);
    this.flatten();
  }

  shut(row) {
    row.open = false;
    this.flatten();
  }

  /** Load the next block of a folder. */
  async more(row) {
    if (row.next === null || row.loading) return;
    row.loading = true;
    try {
      const answer = await this.api.pages({ parent: row.page.index, after: row.next, limit: LARGEST_BLOCK });
      row.children.push(...answer.pages.map((page) => this.row(page, row)));
      row.next = answer.next;
    } finally {
      row.loading = false;
    }
    this.flatten();
  }

  /** Reload at least the given number of a folder's children, and keep open folders open. */
  async load(row, least) {
    const held = new Map((row.children ?? []).map((child) => [child.page.index, child]));
    const pages = [];
    let next = null;
    do {
      const limit = Math.min(LARGEST_BLOCK, Math.max(BLOCK, least - pages.length));
      const answer = await this.api.pages({ parent: row.page.index, limit, after: next });
      pages.push(...answer.pages);
      next = answer.next;
    } while (next !== null && pages.length < least);
    row.next = next;
    if (this.cold)
      pages.push(...(await this.api.pages({ parent: row.page.index, lifecycle: "cold", limit: BLOCK })).pages);
    row.children = pages.map((page) => {
      const child = held.get(page.index);
      if (!child) return this.row(page, row);
      child.page = page;
      return child;
    });
  }

  /** Show or hide the cold archive. */
  async setCold(cold) {
    this.cold = cold;
    await Promise.all([...this.loaded()].map((row) => this.load(row, row.children.length)));
    this.flatten();
  }

  /** Load changes after a seq: only folders that a change touched are read again. */
  async refresh(since) {
    const [touched, answer] = await Promise.all([this.touched(since), this.api.pages({ limit: LARGEST_BLOCK })]);
    const held = new Map(this.roots.map((row) => [row.page.index, row]));
    this.roots = answer.pages.map((page) => Object.assign(held.get(page.index) ?? this.row(page, null), { page }));
    const folders = touched === null ? this.loaded() : await this.foldersOf(touched);
    await Promise.all([...folders].map((row) => this.load(row, row.children.length).catch(() => {})));
    this.flatten();
  }

  /** Return the pages that entries after a seq touched; null if there are too many. */
  async touched(since) {
    const { entries, next } = await this.api.history({ after: since, order: "asc", limit: 100 });
    return next === null ? new Set(entries.flatMap((entry) => entry.pages ?? [])) : null;
  }

  loaded() {
    return new Set([...this.byIndex.values()].filter((row) => row.children !== null));
  }

  async foldersOf(touched) {
    const folders = new Set();
    const add = (row) => row && row.children !== null && folders.add(row);
    const unknown = [];
    for (const index of touched) {
      const row = this.byIndex.get(index);
      if (!row) unknown.push(index);
      add(row);
      add(row?.parent);
    }
    if (unknown.length > 8) return this.loaded();
    const found = await Promise.all(unknown.map((index) => this.api.page(index, { max_chars: 1 }).catch(() => null)));
    for (const page of found) if (page) add(this.byIndex.get(page.parent));
    return folders;
  }

  /** Open the folders above a page (the last of a path). Return the position of its row, or -1. */
  async reveal(path) {
    for (const [depth, index] of path.slice(0, -1).entries()) {
      const row = this.byIndex.get(index);
      if (!row) return -1;
      if (!row.open || row.children === null) await this.open(row);
      const wanted = path[depth + 1];
      while (row.next !== null && !row.children.some((child) => child.page.index === wanted)) await this.more(row);
    }
    return this.placeOf(path.at(-1));
  }
}
