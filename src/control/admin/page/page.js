// Looks at the server again and again, and says so when it can't.

import { Charts } from "./charts.js";
import { List } from "./list.js";
import { ask, Refused, Unreachable } from "./server.js";
import { duration, moment, setText } from "./text.js";

/** How often it is looked. */
const PERIOD_MS = 1000;

/** A server whose answers take long, because it has very many locks, is asked less often. */
const REST = 4;

const condition = document.getElementById("condition");
const pause = document.getElementById("pause");
const charts = new Charts(document.getElementById("counts"));
const list = new List(look);

let timer;
let looking;
let isPaused = false;
let goneSince;
let drainEndsAt;

/** Looks now; what is still under way is called off. */
async function look() {
  clearTimeout(timer);
  looking?.abort();
  const mine = new AbortController();
  looking = mine;
  const begun = performance.now();
  try {
    const info = await ask("GET", "api/info", mine.signal);
    showServer(info);
    await list.update(mine.signal);
  } catch (error) {
    if (!(error instanceof Unreachable || error instanceof Refused)) throw error;
    if (mine === looking) showGone(error);
  } finally {
    // If it is not the latest, that one goes on.
    if (mine === looking && !isPaused && !document.hidden) {
      const rest = Math.max(PERIOD_MS, REST * (performance.now() - begun));
      timer = setTimeout(look, rest);
    }
  }
}

function showServer(info) {
  goneSince = undefined;
  document.body.classList.remove("gone");
  const { config, version, uptime_ms: uptime } = info;
  setText(
    document.getElementById("server"),
    `${config.listen} · version ${version} · up for ${duration(uptime)}`,
  );
  charts.add(info);
  if (info.shutting_down) {
    showCondition("bad", "The server is shutting down: all sessions are being closed.");
  } else if (info.draining) {
    showCondition("bad", drainText(info));
  } else {
    showCondition("", "");
  }
}

function drainText(info) {
  // Worked out anew each time it would tremble.
  const endsAt = Date.now() + info.drain_remaining_ms;
  if (!(Math.abs(endsAt - drainEndsAt) < 2000)) drainEndsAt = endsAt;
  const at = moment(new Date(drainEndsAt));
  return (
    "Maintenance: nothing is granted any more, and the server ends when no lock is held, " +
    `at ${at} at the latest.`
  );
}

function showGone(error) {
  goneSince ??= new Date();
  const why = error instanceof Refused ? ` as it should: ${error.message}` : "";
  document.body.classList.add("gone");
  showCondition(
    "bad",
    `The server has not answered since ${moment(goneSince)}${why}. ` +
      "What is shown is from before; it is asked again and again.",
  );
}

function showCondition(kind, text) {
  condition.hidden = text === "";
  condition.className = `notice ${kind}`;
  setText(condition, text);
}

pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  setText(pause, isPaused ? "Go on" : "Pause");
  if (isPaused) clearTimeout(timer);
  else look();
});

// A page that nobody sees need not look.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isPaused) look();
});

document.addEventListener("change-made", look);

document.title = `monolock ${location.host}`;
look();
