// Taking a lock from its holder and a waiter from its queue: only after somebody has said yes to
// exactly what is going to happen.

import { ask, lockPath, Refused } from "./server.js";
import { duration, element, setText, shown } from "./text.js";

const dialog = document.getElementById("confirm");
const outcome = document.getElementById("outcome");

document.getElementById("cancel").addEventListener("click", () => dialog.close("no"));
document.getElementById("go").addEventListener("click", () => dialog.close("yes"));

/** Has a person decide. */
function confirm(title, paragraphs, verb) {
  setText(document.getElementById("confirm-title"), title);
  document
    .getElementById("confirm-text")
    .replaceChildren(...paragraphs.map((nodes) => element("p", {}, ...nodes)));
  setText(document.getElementById("go"), verb);
  dialog.returnValue = "no";
  dialog.showModal();
  document.getElementById("cancel").focus();
  return new Promise((decided) => {
    const close = () => decided(dialog.returnValue === "yes");
    dialog.addEventListener("close", close, { once: true });
  });
}

function tell(isGood, ...nodes) {
  outcome.hidden = false;
  outcome.className = `notice ${isGood ? "good" : "bad"}`;
  const close = element("button", { type: "button", click: () => (outcome.hidden = true) }, "Close");
  outcome.replaceChildren(element("span", {}, ...nodes), close);
}

async function carryOut(method, path, done, notDone) {
  try {
    await ask(method, path);
    tell(true, ...done);
  } catch (error) {
    if (error instanceof Refused) tell(false, ...notDone, `: ${error.message}.`);
    else tell(false, ...notDone, ", or it is not known: the server did not answer.");
  }
  document.dispatchEvent(new Event("change-made"));
}

/** Takes a lock from the holder that was shown, if a person wants it and it is still that one. */
export async function release(name, holder, waiterCount) {
  const path = lockPath(name);
  if (!path) return cannotName(name);
  const next =
    waiterCount === 0 ? "Nobody waits for it." : "The first in its queue gets it at once.";
  const sure = await confirm(
    "Take this lock from its holder?",
    [
      [shown(name)],
      [
        "Its holder ",
        shown(holder.remote_addr),
        ` has held it for ${duration(holder.held_ms)}, with token ${holder.token}. `,
        `It is told and closed. ${next}`,
      ],
      [
        "The former holder may work on until it reads that: only a resource that checks tokens ",
        "turns it away.",
      ],
    ],
    "Take it",
  );
  if (!sure) return;
  await carryOut(
    "POST",
    `${path}/release?token=${holder.token}`,
    [shown(name), " was taken from ", shown(holder.remote_addr), "."],
    [shown(name), " was not taken from ", shown(holder.remote_addr)],
  );
}

/** Takes a waiter out of its queue, if a person wants it. */
export async function kick(name, waiter) {
  const path = lockPath(name);
  if (!path) return cannotName(name);
  const sure = await confirm(
    "Take this waiter out of the queue?",
    [
      [shown(name)],
      [
        shown(waiter.remote_addr),
        ` has waited for ${duration(waiter.wait_ms)}. It is told and closed; most clients come `,
        "back, and then stand at the end of the queue.",
      ],
    ],
    "Take it out",
  );
  if (!sure) return;
  await carryOut(
    "DELETE",
    `${path}/waiters/${encodeURIComponent(waiter.remote_addr)}`,
    [shown(waiter.remote_addr), " was taken out of the queue for ", shown(name), "."],
    [shown(waiter.remote_addr), " was not taken out of the queue for ", shown(name)],
  );
}

function cannotName(name) {
  tell(false, "A browser can't send the name ", shown(name), " in a path: use curl --path-as-is.");
}
