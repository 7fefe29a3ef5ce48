// Parts of a page that are fetched anew: for a filter or link (its state goes into the address), once the page stands, or live.
const waiting = new Map(); // element -> AbortController of its latest request

export async function refresh(part, { quiet = false } = {}) {
  waiting.get(part)?.abort();
  const control = new AbortController();
  waiting.set(part, control);
  if (!quiet) part.classList.add("busy");
  try {
    const search = location.search;
    const answer = await fetch(part.dataset.part + search, { signal: control.signal, headers: { Accept: "text/html" } });
    if (answer.status === 401) { location.reload(); return false; }
    const text = await answer.text();
    if (control.signal.aborted) return false;
    if (!answer.ok && quiet) return false;
    if (text !== part.shown) put(part, answer.ok ? text : new DOMParser().parseFromString(text, "text/html").querySelector("main").innerHTML);
    part.shown = text;
    part.search = search;
    readdress();
    return answer.ok;
  } catch (error) {
    if (error.name === "AbortError" || error instanceof TypeError) return false; // superseded, or no connection
    throw error;
  } finally {
    if (waiting.get(part) === control) { waiting.delete(part); part.classList.remove("busy"); }
  }
}

function put(part, markup) {
  const focus = part.contains(document.activeElement) ? describe(document.activeElement) : null;
  const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
  const scrolled = new Map([...part.querySelectorAll(".scroll[aria-label]")].map((one) => [one.getAttribute("aria-label"), one.scrollLeft]));
  part.innerHTML = markup;
  for (const one of part.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = true;
  for (const one of part.querySelectorAll(".scroll[aria-label]")) one.scrollLeft = scrolled.get(one.getAttribute("aria-label")) ?? 0;
  if (focus) restore(part, focus);
  // A link to a drawing that comes after the page itself.
  const target = location.hash && !part.arrived ? part.querySelector(`#${CSS.escape(location.hash.slice(1))}`) : null;
  if (target) { part.arrived = true; target.scrollIntoView(); }
  part.dispatchEvent(new CustomEvent("part", { bubbles: true }));
}

function describe(element) {
  const path = element.id ? `#${CSS.escape(element.id)}` : element.getAttribute("aria-label") ? `[aria-label="${CSS.escape(element.getAttribute("aria-label"))}"]` : null;
  const text = element.matches("input:not([type=checkbox]), textarea");
  return {
    path, words: element.textContent.trim(), tag: element.localName, typed: text ? element.value : null,
    range: text && element.selectionStart !== null ? [element.selectionStart, element.selectionEnd] : null,
  };
}

function restore(part, { path, words, tag, typed, range }) {
  const same = path ? part.querySelector(path) : [...part.querySelectorAll(tag)].find((one) => one.textContent.trim() === words);
  if (!same) { part.tabIndex = -1; part.focus({ preventScroll: true }); return; }
  same.focus({ preventScroll: true });
  if (typed !== null && same.value !== typed) same.value = typed; // typed on while the answer was under way
  if (range) same.setSelectionRange(...range);
}

function named(names) {
  return names.split(" ").map((name) => document.getElementById(name)).filter(Boolean);
}

// The address with what a link changes: the rest of it may have changed since the link was made.
function changed(link) {
  const url = new URL(link.getAttribute("href"), location.href); // links inside drawings have no `search` of their own
  const was = new URLSearchParams(link.closest("[data-part]")?.search ?? location.search);
  const given = url.searchParams, now = new URLSearchParams(location.search);
  for (const name of new Set([...was.keys(), ...given.keys()])) {
    if (was.getAll(name).join("\n") === given.getAll(name).join("\n")) continue;
    now.delete(name);
    for (const value of given.getAll(name)) now.append(name, value);
  }
  return `${url.pathname}?${now}`;
}

// Links to drawings, and to their images, say what is shown now.
function readdress() {
  const query = new URLSearchParams(location.search);
  query.delete("cursor");
  for (const one of document.querySelectorAll("[data-part] .tools > *")) {
    const name = one.dataset.png ? "data-png" : "href";
    const [, page, hash] = one.getAttribute(name).match(/^([^?#]*)[^#]*(#.*)?$/);
    one.setAttribute(name, `${page}?${query}${hash ?? ""}`);
  }
}

function go(url, names) {
  history.pushState(null, "", url);
  readdress();
  for (const part of named(names)) refresh(part);
}

export function startParts() {
  for (const part of document.querySelectorAll("[data-part]")) part.search = location.search;
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-update]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(changed(link), link.dataset.update);
  });
  let timer = 0;
  const apply = (form) => {
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (!value) query.delete(name, value);
    const kept = new URLSearchParams(location.search);
    // What other controls of the page have put into the address stays; the form may be older than that.
    for (const name of ["x", "xscale", "yscale", "top"]) {
      query.delete(name);
      if (kept.has(name)) query.set(name, kept.get(name));
    }
    history.replaceState(null, "", `${location.pathname}?${query}`);
    readdress();
    for (const part of named(form.dataset.update)) refresh(part);
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-update]");
    if (!form) return;
    clearTimeout(timer);
    timer = setTimeout(() => apply(form), event.target.localName === "select" ? 0 : 220);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-update]")) return;
    event.preventDefault();
    clearTimeout(timer);
    apply(event.target);
  });
  addEventListener("popstate", () => { readdress(); for (const part of document.querySelectorAll("[data-part]")) refresh(part); });
  for (const part of document.querySelectorAll("[data-lazy]")) refresh(part);
  for (const part of document.querySelectorAll("[data-every]")) {
    setInterval(() => { if (!document.hidden && !waiting.has(part)) refresh(part, { quiet: true }); }, Number(part.dataset.every));
  }
}
