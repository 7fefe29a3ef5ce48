// The marker in a curve: under the pointer, or walked with the arrow keys from one improvement to the next.
const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

function seconds(value) {
  const [scale, unit] = UNITS.find(([scale]) => value >= scale * 0.9995) ?? UNITS[3];
  return `${(value / scale).toPrecision(3)} ${unit}`;
}

export function startCurves(within) {
  for (const box of within.querySelectorAll("[data-curve]")) start(box);
}

function start(box) {
  const { points, records } = JSON.parse(box.querySelector("script").textContent);
  const svg = box.querySelector("svg"), tip = box.querySelector("output");
  if (!points.length) return;
  const improved = new Set(records);
  const stops = points.flatMap((point, index) => (improved.has(point[2]) ? [index] : []));
  const [, top, , height] = [0, 14, 0, svg.viewBox.baseVal.height - 50];
  const marker = document.createElementNS("http://www.w3.org/2000/svg", "path");
  marker.setAttribute("class", "cursor");
  svg.append(marker);
  let at = -1;

  const show = (index) => {
    at = index;
    const [x, y, number, median] = points[index];
    marker.setAttribute("d", `M${x} ${top}V${height}M${x - 4} ${y}h8`);
    tip.textContent = `trial ${number}: ${seconds(median)}${improved.has(number) ? ", the best so far" : ""}`;
    tip.hidden = false;
    const place = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM()), frame = box.getBoundingClientRect();
    const left = place.x - frame.left + box.scrollLeft;
    tip.style.left = `${left > box.scrollLeft + frame.width - 190 ? left - tip.offsetWidth - 10 : left + 10}px`;
    tip.style.top = `${Math.max(0, place.y - frame.top - 28)}px`;
  };
  const hide = () => { tip.hidden = true; marker.setAttribute("d", ""); at = -1; };
  const follow = () => { location.href = `${box.dataset.curve}${points[at][2]}?task=${box.dataset.task}`; };

  svg.addEventListener("pointermove", (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let best = -1, least = 400;
    points.forEach(([x, y], index) => {
      const away = (x - place.x) ** 2 + (y - place.y) ** 2;
      if (away < least) { least = away; best = index; }
    });
    if (best >= 0) show(best); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("click", () => { if (at >= 0) follow(); });
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && at >= 0) { event.preventDefault(); follow(); return; }
    if (event.key === "Escape") { hide(); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.shiftKey || !stops.length) show(Math.min(points.length - 1, Math.max(0, at + step)));
    else {
      const next = step > 0 ? stops.find((index) => index > at) : stops.findLast((index) => index < at || at < 0);
      show(next ?? (step > 0 ? stops.at(-1) : stops[0]));
    }
  });
}
