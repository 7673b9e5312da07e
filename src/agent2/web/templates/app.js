"use strict";
// Keys, toggles, live updates; the pages work without them. Nothing from a record is ever parsed as HTML.
document.documentElement.classList.add("scripted");
const isTyping = (at) => at instanceof Element && at.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
const dialog = document.getElementById("keys");

const showKeys = () => {
  const list = document.createElement("dl");
  for (const control of document.querySelectorAll("[data-key][data-help]")) {
    const key = document.createElement("dt"), help = document.createElement("dd"), cap = document.createElement("kbd");
    cap.textContent = control.dataset.key.replace("ArrowLeft", "←").replace("ArrowRight", "→");
    help.textContent = control.dataset.help;
    key.append(cap);
    list.append(key, help);
  }
  dialog.replaceChildren(list);
  dialog.showModal();
};
const button = document.querySelector("[data-help-button]");
if (button) { button.hidden = false; button.addEventListener("click", showKeys); }

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (event.key === "?") { event.preventDefault(); dialog.open ? dialog.close() : showKeys(); return; }
  const target = [...document.querySelectorAll("[data-key]")].find((control) => control.dataset.key === event.key);
  if (!target || dialog.open) return;
  event.preventDefault();
  if (target.matches("input, textarea")) target.focus(); else target.click();
});

// A link into folded <details> opens them.
const openTarget = () => {
  const target = document.getElementById(location.hash.slice(1));
  const folded = target?.closest("details");
  if (folded && !folded.open) { folded.open = true; target.scrollIntoView(); }
};
openTarget();
addEventListener("hashchange", openTarget);

// An element that scrolls takes the focus, so that the keyboard scrolls it, unless something inside can take it.
const reachScrollers = () => {
  for (const box of document.querySelectorAll(".scroll, .log, .rated .text, .program, .output-block .text")) {
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    if (scrolls && !box.querySelector("a, button, input, select, textarea, summary")) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
// Pinned columns stand beside each other; on a phone there is room for the first one alone.
const placePins = () => {
  for (const row of document.querySelectorAll("table.wide tr")) {
    let left = 0;
    for (const cell of row.querySelectorAll(".pin")) {
      cell.style.left = left + "px";
      cell.style.position = left && innerWidth < 700 ? "static" : "";
      left += cell.offsetWidth;
    }
  }
};
placePins();
addEventListener("resize", placePins);
reachScrollers();
addEventListener("resize", reachScrollers);
addEventListener("toggle", reachScrollers, true);

for (const input of document.querySelectorAll("[data-submit]")) {
  input.addEventListener("change", () => input.form.requestSubmit());
  // It may have been changed before this script ran; forms with autocomplete="off" keep nothing over a reload.
  const initial = input.matches("select") && (input.querySelector("option[selected]") ?? input.options[0]);
  if (initial ? !initial.selected : input.checked !== input.defaultChecked) input.form.requestSubmit();
}

for (const box of document.querySelectorAll("[data-toggle]")) {
  const name = "agent2-hide-" + box.dataset.toggle;
  const apply = () => document.body.classList.toggle("hide-" + box.dataset.toggle, !box.checked);
  if (!box.checked) sessionStorage.setItem(name, "1"); // unchecked before this script ran
  box.checked = sessionStorage.getItem(name) !== "1";
  apply();
  box.addEventListener("change", () => { sessionStorage.setItem(name, box.checked ? "0" : "1"); apply(); });
}

const judged = document.querySelector("[data-judged]");
if (judged) {
  const count = () => { judged.textContent = `${judged.closest("form").querySelectorAll("input[type=radio]:checked").length} of ${judged.dataset.judged} judged`; };
  count();
  judged.closest("form").addEventListener("change", count);
}

for (const clock of document.querySelectorAll("[data-deadline]")) {
  const update = () => {
    const left = Math.max(0, Number(clock.dataset.deadline) - Date.now() / 1000);
    clock.textContent = left > 5400 ? (left / 3600).toFixed(1) + " h" : left > 90 ? Math.round(left / 60) + " min" : Math.round(left) + " s";
  };
  update();
  setInterval(update, 1000);
}

for (const section of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(section.dataset.live);
  source.addEventListener("row", (event) => {
    const update = JSON.parse(event.data), list = update.list && section.querySelector(`[data-rows="${update.list}"]`);
    const rows = update.list ? [...(list?.children ?? [])] : [...document.querySelectorAll("[data-row-key]")];
    const matching = update.key ? rows.filter((row) => row.dataset.rowKey === update.key) : [];
    for (const row of matching) (row.querySelector("[data-message]") ?? row).textContent = update.text;
    if (matching.length || !list) return;
    const line = document.createElement("li");
    line.textContent = update.text;
    if (update.key) line.dataset.rowKey = update.key;
    list.append(line);
    const empty = section.querySelector(`[data-empty="${update.list}"]`);
    if (empty) empty.remove();
  });
  source.addEventListener("text", (event) => {
    const update = JSON.parse(event.data), log = document.querySelector(`[data-text="${update.list}"]`);
    if (!log) return;
    const isAtEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 40;
    log.textContent = (log.textContent + "\n" + update.text).trimStart().slice(-40000);
    log.closest("[hidden]")?.removeAttribute("hidden");
    if (isAtEnd) log.scrollTop = log.scrollHeight;
    reachScrollers();
  });
  source.addEventListener("changed", () => {
    source.close();
    const reload = () => isTyping(document.activeElement) ? setTimeout(reload, 2000) : location.reload(); // not while the reader is typing
    reload();
  });
  addEventListener("pagehide", () => source.close());
}

// a page that waits for something asks again
const waiting = document.querySelector("[data-reload]");
if (waiting) setTimeout(() => location.reload(), Number(waiting.dataset.reload));
