// Requests to the server of the page: answers as JSON, thumbnails, and errors in one sentence.

const MAX_RETRIES = 3;
// A proxy may serve several archives under one host: each has a token of its own.
const TOKEN_KEY = `subtext.token ${new URL(".", location).pathname}`;

export class RequestError extends Error {
  constructor(status, sentence, retryAfter) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// Asks the user for a token, and resolves when there is one; set by the page.
let requestToken = async () => { throw new RequestError(401, "this library needs a token"); };

export function setTokenRequest(request) {
  requestToken = request;
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

function token() {
  return sessionStorage.getItem(TOKEN_KEY) || "";
}

const wait = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("stopped", "AbortError")); });
});

// {a: 1, b: [2, 3], c: null} -> "a=1&b=2&b=3"
export function queryString(values) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const single of Array.isArray(value) ? value : [value]) {
      if (single !== null && single !== undefined && single !== "") parameters.append(name, single);
    }
  }
  return parameters.toString();
}

async function send(path, options) {
  const headers = { ...(options.headers || {}) };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  try {
    return await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The server cannot be reached. It may have been stopped, or the network is gone.", null);
  }
}

// An answer as JSON. A busy server is asked again after the seconds that it names; onBusy(seconds) is called then. Without
// `ask` a missing token is an error like any other: what changes a library is offered otherwise to those who have none.
export async function fetchJson(path, values = {}, { method, body, kind, signal, onBusy, ask = true } = {}) {
  const options = { signal, method: method || (body === undefined ? "GET" : "POST") };
  if (body !== undefined) Object.assign(options, { body, headers: { "Content-Type": kind } });
  const query = queryString(values);
  const address = query ? `${path}?${query}` : path;
  for (let attempt = 0; ; attempt += 1) {
    const answer = await send(address, options);
    if (answer.ok) return answer.status === 204 ? null : answer.json();
    const retryAfter = Number(answer.headers.get("Retry-After")) || null;
    if ((answer.status === 429 || answer.status === 503) && retryAfter !== null && attempt < MAX_RETRIES) {
      onBusy?.(retryAfter);
      await wait(retryAfter, signal);
      continue;
    }
    if (answer.status === 401 && ask) {
      await requestToken();
      continue;
    }
    let sentence = "The server gave no answer that can be read.";
    try { sentence = (await answer.json()).error || sentence; } catch { /* No JSON: the sentence stays. */ }
    throw new RequestError(answer.status, sentence, retryAfter);
  }
}

// Show the image of an item in an <img>. With a token it is fetched, as an address cannot hold one.
export async function showThumbnail(image, id, size, index) {
  const address = `thumbnail?${queryString({ id, size, index })}`;
  if (!token()) {
    image.addEventListener("error", () => explain(image, address), { once: true });
    image.src = address;
    return;
  }
  try {
    const answer = await send(address, {});
    if (!answer.ok) throw new RequestError(answer.status, (await answer.json()).error, null);
    const objectUrl = URL.createObjectURL(await answer.blob());
    image.addEventListener("load", () => URL.revokeObjectURL(objectUrl), { once: true });
    image.addEventListener("error", () => showNone(image, "This browser cannot show it."), { once: true });
    image.src = objectUrl;
  } catch (error) {
    showNone(image, error.message);
  }
}

// An <img> does not say why it shows nothing: the address is asked again for the sentence of the server.
async function explain(image, address) {
  let reason = "This browser cannot show it.";
  try {
    const answer = await send(address, {});
    if (!answer.ok) reason = (await answer.json()).error || reason;
  } catch (error) {
    reason = error instanceof RequestError ? error.message : reason;
  }
  showNone(image, reason);
}

function showNone(image, reason) {
  image.replaceWith(noPicture(reason));
}

// What stands in the place of a picture, and why there is none.
export function noPicture(reason) {
  const note = document.createElement("span");
  note.className = "none";
  const why = document.createElement("small");
  const rest = reason.replace(/^no picture: /i, "");
  note.title = rest.charAt(0).toUpperCase() + rest.slice(1);
  // No line ends within the name of an option.
  for (const part of note.title.split(/(--[\w-]+)/)) {
    const word = document.createElement("span");
    word.textContent = part;
    why.append(part.startsWith("--") ? word : part);
  }
  note.append("No picture", why);
  return note;
}
