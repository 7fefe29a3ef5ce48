// Keyboard shortcuts, the theme, and the list of both.
const THEMES = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "☀", dark: "☾" };

function theme() { return document.documentElement.dataset.theme ?? "system"; }

function showTheme() {
  const button = document.getElementById("theme-button");
  button.firstChild.data = SIGNS[theme()];
  button.title = theme() === "system" ? "Theme: follows the system" : `Theme: ${theme()}`;
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") { delete document.documentElement.dataset.theme; localStorage.removeItem("tuner-theme"); }
  else { document.documentElement.dataset.theme = next; localStorage.setItem("tuner-theme", next); }
  showTheme();
}

function move(step) {
  const links = [...document.querySelectorAll("table.rows tbody tr td:first-child a")];
  if (!links.length) return;
  const here = links.indexOf(document.activeElement?.closest("tr")?.querySelector("td:first-child a"));
  links[Math.min(links.length - 1, Math.max(0, here < 0 ? 0 : here + step))].focus();
}

export function startKeys() {
  const dialog = document.getElementById("keys");
  document.getElementById("keys-button").addEventListener("click", () => dialog.showModal());
  document.getElementById("theme-button").addEventListener("click", nextTheme);
  showTheme();
  let leading = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog[open]")) return;
    if (performance.now() - leading < 1500) {
      leading = -Infinity;
      const link = document.querySelector(`.bar nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; }
      return;
    }
    switch (event.key) {
      case "g": leading = performance.now(); break;
      case "?": dialog.showModal(); break;
      case "t": nextTheme(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "/": {
        const field = document.querySelector("[data-filter]");
        if (field) { event.preventDefault(); field.focus(); field.select?.(); }
        break;
      }
    }
  });
}
