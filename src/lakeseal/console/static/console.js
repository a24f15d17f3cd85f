// What is shown is renewed while it is looked at; times are in the viewer's zone; keys lead from page to page.
"use strict";
const main = document.getElementById("main");
const state = document.getElementById("live-state");

function localTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    one.title = one.textContent;
    const two = (n) => String(n).padStart(2, "0");
    one.textContent = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
}

function isBusy() {
  const focused = document.activeElement;
  return focused instanceof HTMLInputElement || focused instanceof HTMLButtonElement || !getSelection().isCollapsed;
}

let tag = "";
async function renew() {
  if (document.hidden || isBusy()) return;
  try {
    const reply = await fetch(location.href, { headers: { "X-Lakeseal-Live": "1", "If-None-Match": tag, Accept: "text/html" }, cache: "no-store", redirect: "error" });
    if (reply.status === 401) return location.reload();
    if (reply.status === 304) { state.textContent = ""; return; }
    if (!reply.ok) { state.textContent = "not renewed: the service says " + reply.status; return; }
    const fresh = await reply.text();
    tag = reply.headers.get("ETag") || "";
    if (isBusy()) return;
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    const open = [...main.querySelectorAll("details[open]")].map((one) => one.id);
    main.innerHTML = fresh;
    localTimes(main);
    if (focused) for (const one of main.querySelectorAll("a[href]")) if (one.getAttribute("href") === focused) { one.focus({ preventScroll: true }); break; }
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    state.textContent = "";
  } catch {
    state.textContent = "not renewed: the service does not answer";
  }
}

document.addEventListener("submit", (event) => {
  const asks = event.target.dataset.confirm;
  if (asks && !confirm(asks)) event.preventDefault();
});

let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (event.key === "j" || event.key === "k") {
    const rows = [...main.querySelectorAll("a.row")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[event.key === "j" ? Math.min(rows.length - 1, at + 1) : Math.max(0, at - 1)];
    if (next) next.focus();
  } else if (before === "g") {
    const page = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (page) page.click();
  }
  before = event.key;
});

localTimes(document);
if (main.dataset.live) setInterval(renew, Number(main.dataset.live) * 1000);
