/** The token without which nothing can be changed; asked for once, kept until the tab is closed. */
import { make } from "./dom.js";

const KEY = "orderbook.token";

export function knownToken() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function forgetToken() {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}

/** The token, asked for where it is not known; "" where the user gives none. */
export function askToken() {
  const known = knownToken();
  if (known) return Promise.resolve(known);
  return new Promise((resolve) => {
    const input = make("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token", "data-testid": "token" });
    const dialog = make("dialog.ask", { "aria-label": "Token" },
      make("form", { method: "dialog" },
        make("h2", {}, "Token"),
        make("p", {}, "The run asks for monitor.token of its configuration. It is kept until this tab is closed."),
        input,
        make("div.row", {}, make("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), make("button.primary", { value: "ok" }, "Continue"))));
    dialog.addEventListener("close", () => {
      const token = dialog.returnValue === "ok" ? input.value : "";
      if (token) {
        try {
          sessionStorage.setItem(KEY, token);
        } catch {
          // Asked for again next time.
        }
      }
      dialog.remove();
      resolve(token);
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}

/** Sends a request with the token; a wrong one is forgotten. */
export async function changing(connection, message) {
  const token = await askToken();
  if (!token) throw new Error("no token was given");
  try {
    return await connection.request({ ...message, token });
  } catch (error) {
    if (/token/i.test(error.message)) forgetToken();
    throw error;
  }
}
