// The list of locks: which of them, in which order, page by page.

import { Row } from "./row.js";
import { ask, lockPath, Refused } from "./server.js";
import { escaped, setText } from "./text.js";

const LOCKS_A_PAGE = 50;

const body = document.querySelector("#locks tbody");
const match = document.getElementById("match");
const order = document.getElementById("order");
const remark = document.getElementById("remark");
const pages = document.getElementById("pages");
const [first, previous, next] = ["first", "previous", "next"].map((id) =>
  document.getElementById(id),
);

/** The list; `refresh` is called when something else is to be shown. */
export class List {
  constructor(refresh) {
    this.refresh = refresh;
    this.rows = new Map();
    // The last names of the pages before the one that is shown.
    this.before = [];
    let typing;
    match.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.turnTo([]), 250);
    });
    document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
    order.addEventListener("change", () => {
      match.disabled = order.value !== "";
      this.turnTo([]);
    });
    first.addEventListener("click", () => this.turnTo([]));
    previous.addEventListener("click", () => this.turnTo(this.before.slice(0, -1)));
    next.addEventListener("click", () => this.turnTo([...this.before, this.nextAfter]));
  }

  turnTo(before) {
    this.before = before;
    this.close();
    this.refresh();
  }

  /** Asks for what is to be shown, and shows it. */
  async update(signal) {
    try {
      const answer = order.value ? await topList(signal) : await this.page(signal);
      this.show(answer);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      say(`The server does not list them: ${error.message}.`);
    }
    if (this.open) await this.updateOpen(signal);
  }

  async page(signal) {
    const query = new URLSearchParams({ limit: LOCKS_A_PAGE, waiters: 1 });
    if (match.value) query.set("match", pattern(match.value));
    if (this.before.length > 0) query.set("after", this.before.at(-1));
    const answer = await ask("GET", `api/locks?${query}`, signal);
    for (const lock of answer.locks) lock.oldest_wait_ms = lock.waiters[0]?.wait_ms;
    return answer;
  }

  show({ locks, next_after: nextAfter }) {
    this.nextAfter = nextAfter;
    const focused = document.activeElement;
    const names = new Set(locks.map((lock) => lock.name));
    for (const [name, row] of this.rows) if (!names.has(name)) this.remove(row);
    let place = body.firstChild;
    for (const lock of locks) {
      const row = this.rows.get(lock.name) ?? this.add(lock.name);
      row.update(lock);
      if (row.main === place) {
        place = row.below.nextSibling;
      } else {
        body.insertBefore(row.main, place);
        body.insertBefore(row.below, place);
      }
    }
    // What is moved within the list loses the focus.
    if (focused !== document.activeElement && focused.isConnected) {
      focused.focus({ preventScroll: true });
    }
    say(locks.length > 0 ? "" : this.whyEmpty());
    pages.hidden = this.before.length === 0 && nextAfter === undefined;
    first.disabled = previous.disabled = this.before.length === 0;
    next.disabled = nextAfter === undefined;
    setText(document.getElementById("page-number"), `Page ${this.before.length + 1}`);
  }

  whyEmpty() {
    if (this.before.length > 0) return "There are no more locks.";
    if (order.value === "" && match.value) return `No lock in use matches ${escaped(match.value)}.`;
    return order.value && order.value !== "oldest_hold" ? "Nobody waits." : "No lock is in use.";
  }

  add(name) {
    const row = new Row(name, () => this.toggle(row));
    row.wantsMore = this.refresh;
    this.rows.set(name, row);
    return row;
  }

  remove(row) {
    if (this.open === row) this.close();
    this.rows.delete(row.name);
    row.main.remove();
    row.below.remove();
  }

  toggle(row) {
    const isOpen = this.open === row;
    this.close();
    if (isOpen) return;
    this.open = row;
    row.setOpen(true);
    this.refresh();
  }

  close() {
    this.open?.setOpen(false);
    this.open = undefined;
  }

  async updateOpen(signal) {
    const row = this.open;
    const path = lockPath(row.name);
    // Of the two names that no browser sends there is only what the list says.
    if (!path) return row.updateQueue(row.lock);
    try {
      const lock = await ask("GET", `${path}?waiters=${row.waitersMax}`, signal);
      if (row === this.open) row.updateQueue(lock);
    } catch (error) {
      // Let go of since the list was made; the next one says so.
      if (!(error instanceof Refused)) throw error;
    }
  }
}

/** Text without a wildcard is looked for anywhere in a name. */
function pattern(text) {
  return /[*?]/.test(text) ? text : `*${text}*`;
}

async function topList(signal) {
  const query = new URLSearchParams({ by: order.value, limit: LOCKS_A_PAGE });
  const { locks } = await ask("GET", `api/top?${query}`, signal);
  return {
    locks: locks.map(({ name, holder, waiters, oldest_wait_ms: oldest }) => ({
      name,
      holder,
      waiters_count: waiters,
      waiters: [],
      oldest_wait_ms: oldest ?? undefined,
    })),
  };
}

function say(text) {
  remark.hidden = text === "";
  setText(remark, text);
}
