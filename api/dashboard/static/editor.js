// The submit form: asks for the verdict while one types, numbers the lines of the notation and marks the one at fault.
export function startEditor() {
  const form = document.getElementById("submit-form");
  if (!form) return;
  const verdict = document.getElementById("verdict"), editor = form.querySelector("[data-editor]");
  const area = editor?.querySelector("textarea"), gutter = editor?.querySelector(".gutter");
  let wrong = Number(editor?.dataset.errorLine ?? 0), control = null, timer = 0;

  const number = () => {
    if (!area) return;
    gutter.replaceChildren(...area.value.split("\n").map((_, index) => {
      const line = document.createElement("b");
      line.textContent = String(index + 1);
      if (index + 1 === wrong) line.className = "wrong";
      return line;
    }));
    gutter.scrollTop = area.scrollTop;
  };
  const check = async () => {
    control?.abort();
    control = new AbortController();
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.dataset.check, { method: "POST", body, signal: control.signal });
      verdict.innerHTML = answer.ok ? await answer.text() : "<p class='problem'>The service refused the check; reload the page.</p>";
    } catch (error) {
      if (error.name === "AbortError") return;
      verdict.textContent = "The service cannot be reached.";
    }
    const problem = verdict.querySelector("[data-line]");
    wrong = Number(problem?.dataset.line ?? 0);
    if (area) area.toggleAttribute("aria-invalid", wrong > 0);
    if (area && wrong > 0) area.setAttribute("aria-invalid", "true");
    number();
  };
  form.addEventListener("input", () => { number(); clearTimeout(timer); timer = setTimeout(check, 250); });
  area?.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
  area?.addEventListener("keydown", (event) => {
    // Tab stays a way out of the field; Ctrl+Enter sends.
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(form.querySelector(".primary")); }
  });
  number();
  check();
}
