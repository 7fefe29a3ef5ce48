// Calls one function of a module on arrays in files, as emulated.c does: MODULE SYMBOL (in|out):BYTES:FILE… Outputs are filled with
// a poison, and written to their files after the call.
import { readFile, writeFile } from "node:fs/promises";
import process from "node:process";
import { pathToFileURL } from "node:url";

const ALIGNMENT = 64;
const POISON = 0xff;

function fail(what, why) {
  console.error(`${what}: ${why}`);
  process.exit(1);
}

const [path, symbol, ...words] = process.argv.slice(2);
const { instantiate } = await import(pathToFileURL(path.replace(/\.wasm$/, ".mjs")));
const exports = await instantiate();
const text = (address) => {
  const bytes = new Uint8Array(exports.memory.buffer, address >>> 0);
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
};
const buffers = words.map((word) => {
  const [, role, size, file] = /^(in|out):(\d+):(.*)$/.exec(word);
  const address = exports.emulated_alloc(Number(size) + ALIGNMENT) >>> 0;
  if (address === 0 || address % ALIGNMENT !== 0) fail(file, "no memory");
  return { role, size: Number(size), file, address };
});
const bytesOf = ({ address, size }) => new Uint8Array(exports.memory.buffer, address, size + ALIGNMENT);

for (const buffer of buffers) {
  bytesOf(buffer).fill(POISON);
  if (buffer.role === "in") bytesOf(buffer).set(await readFile(buffer.file));
}
const status = exports[symbol](...buffers.map(({ address }) => address));
if (status !== 0) fail(symbol, `${status}: ${text(exports.emulated_last_error())}`);
for (const buffer of buffers) {
  const after = bytesOf(buffer);
  if (after.subarray(buffer.size).some((byte) => byte !== POISON)) fail(buffer.file, "written beyond its end");
  if (buffer.role === "out") await writeFile(buffer.file, after.subarray(0, buffer.size));
  else if (Buffer.compare(await readFile(buffer.file), after.subarray(0, buffer.size)) !== 0) fail(buffer.file, "an input was changed");
}
