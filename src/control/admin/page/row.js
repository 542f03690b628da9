// One lock of the list: a row, and below it, if somebody opens it, its queue.

import { kick, release } from "./actions.js";
import { duration, element, escaped, moment, number, setName, setText, shown } from "./text.js";

/** How many more waiters are shown at a time. */
const WAITERS_A_STEP = 100;

/** A session this far into its lease does not beat as it should. */
const LATE = 0.5;

let rows = 0;

/** Who has a claim. */
function who({ identity, remote_addr: address }) {
  return identity ? `${identity} ${address}` : address;
}

function cell(label, ...children) {
  return element("td", { role: "cell", "data-label": label }, ...children);
}

/** Two lines, of which the second is less important. */
class TwoLines {
  constructor(label) {
    this.main = element("span");
    this.more = element("small");
    this.cell = cell(label, element("div", {}, this.main, this.more));
  }

  set(main, more) {
    setText(this.main, main);
    setText(this.more, more);
  }
}

function isLate(claim) {
  return claim.last_heard_ms > LATE * claim.lease_ms;
}

function button(text, label, act) {
  return element("button", { type: "button", "aria-label": label, click: act }, text);
}

/** A row of the list and the row below it. */
export class Row {
  /** `open` is told when somebody opens or closes the queue. */
  constructor(name, open) {
    this.name = name;
    this.waitersMax = WAITERS_A_STEP;
    const id = `lock-${(rows += 1)}`;
    this.opener = element(
      "button",
      { type: "button", class: "opener", "aria-expanded": "false", "aria-controls": id },
      shown(name),
    );
    this.opener.addEventListener("click", () => open(this));
    this.holder = new TwoLines("Holder");
    this.held = new TwoLines("Held for");
    this.heard = new TwoLines("Last heard");
    this.waiting = new TwoLines("Waiting");
    this.release = button("Release…", `Release ${escaped(name)}`, () =>
      release(name, this.lock.holder, this.lock.waiters_count),
    );
    this.release.classList.add("danger");
    const head = element("th", { role: "rowheader", scope: "row" }, this.opener);
    this.main = element(
      "tr",
      { role: "row" },
      head,
      this.holder.cell,
      this.held.cell,
      this.heard.cell,
      this.waiting.cell,
      cell("", this.release),
    );
    this.more = element("td", { role: "cell", colspan: "6" });
    this.below = element("tr", { role: "row", id, class: "below", hidden: "" }, this.more);
  }

  /** Shows what the list says of it. */
  update(lock) {
    this.lock = lock;
    const { holder } = lock;
    this.release.hidden = !holder;
    if (holder) {
      setName(this.holder.main, who(holder));
      setText(this.holder.more, `token ${holder.token}`);
      this.held.set(duration(holder.held_ms), `since ${moment(new Date(holder.since))}`);
      this.heard.set(`${duration(holder.last_heard_ms)} ago`, `lease ${duration(holder.lease_ms)}`);
    } else {
      this.holder.set("nobody", "");
      this.held.set("–", "");
      this.heard.set("–", "");
    }
    this.heard.main.classList.toggle("late", Boolean(holder) && isLate(holder));
    const { waiters_count: count, oldest_wait_ms: oldest } = lock;
    const first = count > 0 && oldest !== undefined ? `the first for ${duration(oldest)}` : "";
    this.waiting.set(count === 0 ? "–" : number(count), first);
  }

  /** Opens or closes what is below it. */
  setOpen(isOpen) {
    this.opener.setAttribute("aria-expanded", String(isOpen));
    this.below.hidden = !isOpen;
    if (!isOpen) this.more.replaceChildren();
    this.queue = undefined;
  }

  /** Shows what the lock's own answer says. */
  updateQueue(lock) {
    if (!this.queue) {
      this.ended = element("p");
      this.title = element("h3");
      this.queue = element("ol", { class: "queue" });
      this.rest = element("button", { type: "button", click: () => this.showMore() });
      this.more.replaceChildren(this.ended, this.title, this.queue, this.rest);
    }
    setText(this.ended, lock.last_hold ? ending(lock.last_hold) : "");
    this.ended.hidden = !lock.last_hold;
    setText(this.title, lock.waiters_count === 0 ? "Nobody waits" : "Its queue");
    this.updateWaiters(lock.waiters);
    const left = lock.waiters_count - lock.waiters.length;
    this.rest.hidden = left <= 0;
    setText(this.rest, `Show more of the ${number(left)} behind them`);
  }

  showMore() {
    this.waitersMax += WAITERS_A_STEP;
    this.wantsMore();
  }

  /** Goes through the queue, keeping what is there: somebody may just be about to press a button. */
  updateWaiters(waiters) {
    const known = new Map([...this.queue.children].map((item) => [item.waiter.remote_addr, item]));
    let place = this.queue.firstChild;
    for (const waiter of waiters) {
      const item = known.get(waiter.remote_addr) ?? this.waiterItem(waiter);
      known.delete(waiter.remote_addr);
      item.waiter = waiter;
      const [, wait, heard] = item.children;
      setText(wait, `waits for ${duration(waiter.wait_ms)}`);
      setText(
        heard,
        `heard ${duration(waiter.last_heard_ms)} ago, lease ${duration(waiter.lease_ms)}`,
      );
      heard.classList.toggle("late", isLate(waiter));
      if (item === place) place = place.nextSibling;
      else this.queue.insertBefore(item, place);
    }
    for (const item of known.values()) item.remove();
  }

  waiterItem(waiter) {
    const item = element("li", {}, shown(who(waiter)), element("span"), element("span"));
    const label = `Kick ${escaped(who(waiter))}`;
    item.append(button("Kick…", label, () => kick(this.name, item.waiter)));
    return item;
  }
}

function ending(hold) {
  const at = moment(new Date(hold.ended_at));
  return (
    `The hold before was ${escaped(hold.remote_addr)}'s, with token ${hold.token}; ` +
    `it ended at ${at} after ${duration(hold.held_ms)}: ${hold.reason}.`
  );
}
