// What the page asks of its server, and only of it: answers as JSON, small pictures, and errors in one sentence.

const PATIENCE = 3;
const KEY = "subtext.token";

export class Problem extends Error {
  constructor(status, sentence, again) {
    super(sentence);
    this.status = status;
    this.again = again;
  }
}

// Set by the page: asks for a token, and resolves when there is one.
export const door = { open: async () => { throw new Problem(401, "this library needs a token"); } };

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

function token() {
  return sessionStorage.getItem(KEY) || "";
}

const wait = (seconds, signal) => new Promise((done, failed) => {
  const timer = setTimeout(done, seconds * 1000);
  signal?.addEventListener("abort", () => { clearTimeout(timer); failed(new DOMException("stopped", "AbortError")); });
});

// {a: 1, b: [2, 3], c: null} -> "a=1&b=2&b=3"
export function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") found.append(name, one);
    }
  }
  return found.toString();
}

async function send(path, options) {
  const headers = { ...(options.headers || {}) };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  try {
    return await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server cannot be reached. It may have been stopped, or the network is gone.", null);
  }
}

// An answer as JSON. A busy server is asked again after the time that it names; told(seconds) hears of that.
export async function ask(path, values = {}, { body, kind, signal, told } = {}) {
  const options = { signal };
  if (body !== undefined) Object.assign(options, { method: "POST", body, headers: { "Content-Type": kind } });
  const address = `${path}?${query(values)}`;
  for (let turn = 0; ; turn += 1) {
    const answer = await send(address, options);
    if (answer.ok) return answer.json();
    const again = Number(answer.headers.get("Retry-After")) || null;
    if ((answer.status === 429 || answer.status === 503) && again !== null && turn < PATIENCE) {
      told?.(again);
      await wait(again, signal);
      continue;
    }
    if (answer.status === 401) {
      await door.open();
      continue;
    }
    let sentence = "The server gave no answer that can be read.";
    try { sentence = (await answer.json()).error || sentence; } catch { /* No JSON: the sentence stays. */ }
    throw new Problem(answer.status, sentence, again);
  }
}

// Let an <img> show an item's picture. With a token it is fetched, as an address cannot bring one.
export async function show(image, id, size, index) {
  const address = `/thumbnail?${query({ id, size, index })}`;
  image.addEventListener("error", () => missing(image), { once: true });
  if (!token()) {
    image.src = address;
    return;
  }
  try {
    const answer = await send(address, {});
    if (!answer.ok) throw new Problem(answer.status, "no picture", null);
    const made = URL.createObjectURL(await answer.blob());
    image.addEventListener("load", () => URL.revokeObjectURL(made), { once: true });
    image.src = made;
  } catch {
    missing(image);
  }
}

function missing(image) {
  const note = document.createElement("span");
  note.className = "none";
  note.textContent = "no picture";
  image.replaceWith(note);
}
