// What others chose (names, identities, addresses) as text on the page, and nothing else than text.

// Characters that can't be seen, or that change what is seen around them.
const UNSEEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;

/** Makes an element. What is to stand in it becomes text, whatever it looks like. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Replaces a node's text if it is another one, so that nothing is read out twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The text cut into what is shown as it is and what is shown escaped. */
function* pieces(text) {
  const characters = [...text];
  for (const [index, character] of characters.entries()) {
    const isInside = index > 0 && index < characters.length - 1;
    const isPlain = character === " " ? isInside : !UNSEEN.test(character);
    yield isPlain
      ? { text: character, isEscaped: false }
      : { text: `\\u{${character.codePointAt(0).toString(16)}}`, isEscaped: true };
  }
}

/** A name in which nothing is unseen, for where there is only room for text. */
export function escaped(name) {
  return [...pieces(name)].map((piece) => piece.text).join("");
}

/** A name as a node that keeps its direction to itself. */
export function shown(name) {
  const node = element("bdi", { class: "name" });
  let plain = "";
  for (const piece of pieces(name)) {
    if (!piece.isEscaped) {
      plain += piece.text;
      continue;
    }
    node.append(plain, element("span", { class: "escaped" }, piece.text));
    plain = "";
  }
  node.append(plain);
  return node;
}

/** Shows a name in a node, if it is another one. */
export function setName(node, name) {
  if (node.textContent !== escaped(name)) node.replaceChildren(shown(name));
}

/** A length of time, to be read at a glance. */
export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (ms < 1000) return `${ms} ms`;
  if (seconds < 10) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (minutes < 1) return `${seconds} s`;
  if (hours < 1) return together(minutes, "min", seconds % 60, "s");
  if (hours < 48) return together(hours, "h", minutes % 60, "min");
  return together(Math.floor(hours / 24), "d", hours % 24, "h");
}

function together(most, unit, rest, unitOfRest) {
  return rest === 0 ? `${most} ${unit}` : `${most} ${unit} ${rest} ${unitOfRest}`;
}

/** A moment by this browser's clock and calendar. */
export function moment(time) {
  const isRecent = Date.now() - time < 86_400_000;
  return isRecent ? time.toLocaleTimeString() : time.toLocaleString();
}

const WHOLE = new Intl.NumberFormat("en");
const FINE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A number with its thousands apart. */
export function number(value) {
  return (Number.isInteger(value) || value >= 100 ? WHOLE : FINE).format(
    value >= 100 ? Math.round(value) : value,
  );
}
