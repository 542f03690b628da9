// The admin API. Paths are relative, so that the page also works behind a path of a proxy.

/** The server has answered, and does not do it. */
export class Refused extends Error {}

/** There is no answer, or only a part of one. */
export class Unreachable extends Error {}

/** Answers take a moment when an event loop is behind, but not for ever. */
const ANSWER_WITHIN_MS = 10_000;

/** Asks, and gives what the JSON says. `signal` calls it off. */
export async function ask(method, path, signal = new AbortController().signal) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), ANSWER_WITHIN_MS);
  const callOff = () => late.abort();
  signal.addEventListener("abort", callOff);
  try {
    const response = await fetch(path, { method, signal: late.signal });
    const answer = await response.json();
    // What was called off must not be shown, even if it came just before.
    signal.throwIfAborted();
    if (!response.ok) throw new Refused(answer.error);
    return answer;
  } catch (error) {
    throw error instanceof Refused ? error : new Unreachable("no answer", { cause: error });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", callOff);
  }
}

/** The path of a lock; `undefined` for the two names that no browser sends as they are. */
export function lockPath(name) {
  return name === "." || name === ".." ? undefined : `api/locks/${encodeURIComponent(name)}`;
}
