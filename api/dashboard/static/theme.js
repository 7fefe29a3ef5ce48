// Runs before the first paint: the chosen theme, else the system's.
"use strict";
(() => {
  const chosen = localStorage.getItem("tuner-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
