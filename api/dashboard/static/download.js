// A drawing as a PNG: the service's SVG, painted at twice its size.
const SCALE = 2;

export function startDownloads(within) {
  for (const button of within.querySelectorAll("[data-png]")) {
    button.hidden = false;
    button.addEventListener("click", () => save(button));
  }
}

async function save(button) {
  const address = new URL(button.dataset.png, location.href);
  const picture = new Image();
  picture.src = address;
  try { await picture.decode(); } catch { button.textContent = "no image"; return; }
  const canvas = document.createElement("canvas");
  canvas.width = SCALE * picture.naturalWidth;
  canvas.height = SCALE * picture.naturalHeight;
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  const content = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `${address.pathname.split("/").filter((part) => part && part !== "charts").slice(-2).join("-").replace(/\.svg$/, "")}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
