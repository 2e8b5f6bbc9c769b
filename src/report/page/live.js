// Keeps the page as things are: /live sends each section that has changed.
"use strict";

const said = document.getElementById("live");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const MOVING = 100;

function say(text, lost) {
  if (said.textContent !== text) said.textContent = text;
  said.classList.toggle("lost", lost);
}

const key = (node) => (node.dataset ? node.dataset.key : undefined);

// Changes as little as it can, so that focus and selection stay.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, at) => (at < before.length ? morph(before[at], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

// Names what can be seen to move from one node to another.
function name(root) {
  const chips = root.querySelectorAll(".chip");
  if (chips.length > MOVING) return;
  for (const chip of chips) {
    chip.style.viewTransitionName = "chip-" + chip.dataset.key.replace(/[^0-9a-z]/gi, "-");
  }
}

const where = (root) =>
  [...root.querySelectorAll(".node")].map((node) => [
    key(node),
    [...node.querySelectorAll(".chip")].map(key),
  ]);

function show(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old) return;
  const moved = JSON.stringify(where(old)) !== JSON.stringify(where(fresh));
  if (!moved || calm.matches || !document.startViewTransition) {
    morph(old, fresh);
    return;
  }
  name(old);
  document.startViewTransition(() => {
    name(fresh);
    old.replaceWith(fresh);
  });
}

const events = new EventSource("live");
events.addEventListener("open", () => say("Live.", false));
events.addEventListener("error", () => say("Not live: the connection is lost; trying again.", true));
events.addEventListener("section", (event) => {
  const parsed = new DOMParser().parseFromString(event.data, "text/html");
  const fresh = parsed.querySelector("section");
  if (fresh) show(document.adoptNode(fresh));
});
