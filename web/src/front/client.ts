// Asking the front-end, and giving it orders. A failure is an Error whose message is for people.

import { TokenError, Tokened, reason } from "../client";
import type { Order } from "./hands";

const TIMEOUT_MS = 5000;
const OPERATOR_KEY = "tidegate-operator";

/** The front-end does not know what is asked: it is older than the page, or the thing is gone. */
export class NotThere extends Error {}

export class Client extends Tokened {
  /** The name under which orders are given. */
  get operator(): string {
    return localStorage.getItem(OPERATOR_KEY) ?? "";
  }

  set operator(name: string) {
    localStorage.setItem(OPERATOR_KEY, name);
  }

  /** Asks, and gives the answer as it came. */
  async get(path: string): Promise<unknown> {
    const answer = await this.ask(path, { method: "GET" });
    if (answer.status === 404) throw new NotThere(await reason(answer));
    if (!answer.ok) throw new Error(await reason(answer));
    return answer.json();
  }

  /** Gives an order in the operator's name. */
  async order({ path, body }: Order): Promise<unknown> {
    const headers: Record<string, string> = { "tidegate-override": "1" };
    if (this.operator) headers["tidegate-operator"] = this.operator;
    if (body) headers["content-type"] = "application/json";
    const answer = await this.ask(path, {
      method: "POST",
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(await reason(answer));
    return answer.json().catch(() => null);
  }

  private async ask(path: string, request: RequestInit): Promise<Response> {
    const { token } = this;
    const headers = { ...request.headers, ...(token !== null && { authorization: `Bearer ${token}` }) };
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(path, { ...request, headers, signal, cache: "no-store" }).catch(() => {
      throw new Error("No answer from the front-end.");
    });
    if (answer.status === 401) {
      throw new TokenError(
        token === null ? "This front-end asks for a token." : "This token is not accepted.",
      );
    }
    return answer;
  }
}
