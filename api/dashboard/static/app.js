// Starts the islands that a page has; without script every page still works through its links and forms.
import { startCurves } from "./curve.js";
import { startDownloads } from "./download.js";
import { startEditor } from "./editor.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startParts } from "./parts.js";

startKeys();
startParts();
startLive();
startEditor();
startCurves(document);
startDownloads(document);
document.addEventListener("part", (event) => { startCurves(event.target); startDownloads(event.target); });

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  const words = button.firstChild;
  try {
    await navigator.clipboard.writeText(text);
    words.data = "Copied";
  } catch {
    // Without a secure origin there is no clipboard: the text is selected instead.
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    words.data = "Selected";
  }
  setTimeout(() => { words.data = "Copy"; }, 1500);
});

for (const select of document.querySelectorAll("[data-choose]")) {
  select.addEventListener("change", () => { location.href = select.dataset.choose + encodeURIComponent(select.value); });
}
for (const select of document.querySelectorAll("[data-submit]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}
