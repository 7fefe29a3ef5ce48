// Follows a job's events. Any event makes the parts stale; they are fetched anew as often as the service can bear.
// What is shown is always the database's state, so nothing is lost however long a connection was gone.
import { refresh } from "./parts.js";

const LEAST_MS = 150, SLOW_MS = 4000, PATIENCE = 2; // a part rests PATIENCE times as long as it took
const ENDED = ["succeeded", "failed", "cancelled"];
const KINDS = ["trial", "best", "kernel", "note", "queued", "running", "cancelling", ...ENDED];

export function startLive() {
  const root = document.querySelector("[data-events]");
  if (!root || root.dataset.finished === "true") return;
  const parts = [...root.querySelectorAll("[data-live]")].map((part) => ({ part, stale: false, next: 0, running: false }));
  let last = Number(root.dataset.after), source = null, over = false, pause = 500;

  const say = (kind, words) => {
    const sign = document.getElementById("live");
    if (sign) { sign.className = `live small ${kind}`; if (sign.textContent !== words) sign.textContent = words; }
  };
  let state = ["", ""];
  const show = (kind, words) => { state = [kind, words]; say(kind, words); };
  root.addEventListener("part", () => say(...state));

  const pump = async (one) => {
    if (one.running || !one.stale) return;
    const wait = one.next - performance.now();
    one.running = true;
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    one.stale = false;
    const started = performance.now();
    const done = await refresh(one.part, { quiet: true });
    const took = performance.now() - started;
    one.next = performance.now() + Math.max(one.part.dataset.live === "slow" ? SLOW_MS : LEAST_MS, took * PATIENCE);
    one.running = false;
    if (!done) one.stale = true;
    if (one.stale) setTimeout(() => pump(one), done ? 0 : 1000);
  };
  const stale = () => {
    for (const one of parts) {
      // A page of the table further on, or one that is being filtered, stays under the reader's eyes.
      if (one.part.id === "trials" && (new URLSearchParams(location.search).has("cursor") || one.part.contains(document.activeElement))) continue;
      one.stale = true;
      pump(one);
    }
  };
  const open = () => {
    source = new EventSource(`${root.dataset.events}?after=${last}`);
    source.onopen = () => { pause = 500; show("on", "live"); };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        last = Math.max(last, Number(event.lastEventId));
        if (ENDED.includes(kind)) { over = true; show("", "ended"); source.close(); }
        stale();
      });
    }
    source.onerror = () => {
      if (over) return;
      show("off", "reconnecting");
      close();
      setTimeout(look, pause);
      pause = Math.min(pause * 2, 10_000);
    };
  };
  const close = () => { source?.close(); source = null; };
  // A browser has six connections to a host: a page that nobody sees leaves its own to the others.
  const look = () => {
    const seen = document.visibilityState === "visible";
    if (over || seen === (source !== null)) return;
    if (seen) { stale(); open(); } else close();
  };
  open();
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) look(); });
}
