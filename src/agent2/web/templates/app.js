"use strict";
// Keys, toggles, live updates. Everything works without it but these; nothing from a record is ever read as HTML.
document.documentElement.classList.add("scripted");
const isTyping = (at) => at instanceof Element && at.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
const dialog = document.getElementById("keys");

const showKeys = () => {
  const list = document.createElement("dl");
  for (const one of document.querySelectorAll("[data-key][data-help]")) {
    const key = document.createElement("dt"), words = document.createElement("dd"), cap = document.createElement("kbd");
    cap.textContent = one.dataset.key.replace("ArrowLeft", "←").replace("ArrowRight", "→");
    words.textContent = one.dataset.help;
    key.append(cap);
    list.append(key, words);
  }
  dialog.replaceChildren(list);
  dialog.showModal();
};
const button = document.querySelector("[data-help-button]");
if (button) { button.hidden = false; button.addEventListener("click", showKeys); }

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (event.key === "?") { event.preventDefault(); dialog.open ? dialog.close() : showKeys(); return; }
  const target = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
  if (!target || dialog.open) return;
  event.preventDefault();
  if (target.matches("input, textarea")) target.focus(); else target.click();
});

// A link into something that is folded opens it.
const openTarget = () => {
  const at = document.getElementById(location.hash.slice(1));
  const folded = at?.closest("details");
  if (folded && !folded.open) { folded.open = true; at.scrollIntoView(); }
};
openTarget();
addEventListener("hashchange", openTarget);

// What scrolls on its own can be scrolled by keyboard: it takes the focus, unless something inside does.
const reachScrollers = () => {
  for (const one of document.querySelectorAll(".scroll, .log, .rated .text")) {
    const scrolls = one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight;
    if (scrolls && !one.querySelector("a, button, input, select, textarea, summary")) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  }
};
// Pinned columns stand beside each other; on a phone there is room for the first one alone.
const placePins = () => {
  for (const row of document.querySelectorAll("table.wide tr")) {
    let left = 0;
    for (const one of row.querySelectorAll(".pin")) {
      one.style.left = left + "px";
      one.style.position = left && innerWidth < 700 ? "static" : "";
      left += one.offsetWidth;
    }
  }
};
placePins();
addEventListener("resize", placePins);
reachScrollers();
addEventListener("resize", reachScrollers);
addEventListener("toggle", reachScrollers, true);

for (const one of document.querySelectorAll("[data-submit]")) {
  one.addEventListener("change", () => one.form.requestSubmit());
  // What was chosen before this script ran; forms with autocomplete="off" keep nothing over a reload.
  const first = one.matches("select") && (one.querySelector("option[selected]") ?? one.options[0]);
  if (first ? !first.selected : one.checked !== one.defaultChecked) one.form.requestSubmit();
}

for (const one of document.querySelectorAll("[data-toggle]")) {
  const name = "agent2-hide-" + one.dataset.toggle;
  const apply = () => document.body.classList.toggle("hide-" + one.dataset.toggle, !one.checked);
  if (!one.checked) sessionStorage.setItem(name, "1"); // chosen before this script ran
  one.checked = sessionStorage.getItem(name) !== "1";
  apply();
  one.addEventListener("change", () => { sessionStorage.setItem(name, one.checked ? "0" : "1"); apply(); });
}

for (const one of document.querySelectorAll("[data-deadline]")) {
  const tell = () => {
    const left = Math.max(0, Number(one.dataset.deadline) - Date.now() / 1000);
    one.textContent = left > 5400 ? (left / 3600).toFixed(1) + " h" : left > 90 ? Math.round(left / 60) + " min" : Math.round(left) + " s";
  };
  tell();
  setInterval(tell, 1000);
}

for (const place of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(place.dataset.live);
  source.addEventListener("row", (event) => {
    const told = JSON.parse(event.data), list = told.list && place.querySelector(`[data-rows="${told.list}"]`);
    const rows = told.list ? [...(list?.children ?? [])] : [...document.querySelectorAll("[data-row-key]")];
    const known = told.key ? rows.filter((one) => one.dataset.rowKey === told.key) : [];
    for (const one of known) (one.querySelector("[data-words]") ?? one).textContent = told.words;
    if (known.length || !list) return;
    const line = document.createElement("li");
    line.textContent = told.words;
    if (told.key) line.dataset.rowKey = told.key;
    list.append(line);
    const empty = place.querySelector(`[data-empty="${told.list}"]`);
    if (empty) empty.remove();
  });
  source.addEventListener("text", (event) => {
    const told = JSON.parse(event.data), text = document.querySelector(`[data-text="${told.list}"]`);
    if (!text) return;
    const isAtEnd = text.scrollTop + text.clientHeight > text.scrollHeight - 40;
    text.textContent = (text.textContent + "\n" + told.words).trimStart().slice(-40000);
    text.closest("[hidden]")?.removeAttribute("hidden");
    if (isAtEnd) text.scrollTop = text.scrollHeight;
    reachScrollers();
  });
  source.addEventListener("changed", () => {
    source.close();
    const reload = () => isTyping(document.activeElement) ? setTimeout(reload, 2000) : location.reload(); // not while somebody writes
    reload();
  });
  addEventListener("pagehide", () => source.close());
}
