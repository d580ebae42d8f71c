// Asking the front-end and giving it runtime overrides. A failure is an Error whose message is for people.

const TIMEOUT_MS = 5000;
/** Distinguishes a page of ours from one elsewhere, which cannot send it unasked. */
const OVERRIDE_HEADER = "tidegate-override";
const TOKEN_KEY = "token";

/** The front-end wants a token, or another one. */
export class TokenError extends Error {}

/** There is nothing to show yet. */
export class NothingYet extends Error {}

/** The token that this tab has been given. */
export class Tokened {
  get token(): string | null {
    return sessionStorage.getItem(TOKEN_KEY);
  }

  set token(token: string | null) {
    // A field's value is of plain letters: with others nothing could be asked at all.
    const sent = token?.replace(/[^\x21-\x7e]/g, "?");
    if (sent) sessionStorage.setItem(TOKEN_KEY, sent);
  }
}

export class Client extends Tokened {
  /** The report as it came, not yet read. */
  async report(): Promise<unknown> {
    const answer = await this.ask("/api/culprits", { method: "GET" });
    if (answer.status === 404 || answer.status === 204) throw new NothingYet(await reason(answer));
    if (!answer.ok) throw new Error(await reason(answer));
    return answer.json();
  }

  /** Gives an override and returns what the answer notes. */
  async override(path: string, body: object): Promise<string | null> {
    const answer = await this.ask(path, {
      method: "POST",
      headers: { "content-type": "application/json", [OVERRIDE_HEADER]: "1" },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await reason(answer));
    const said: unknown = await answer.json().catch(() => null);
    const note = typeof said === "object" && said !== null ? (said as { note?: unknown }).note : null;
    return typeof note === "string" ? note : null;
  }

  private async ask(path: string, request: RequestInit): Promise<Response> {
    const token = this.token;
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

/** Why the front-end does not do what was asked, in its words. */
export async function reason(answer: Response): Promise<string> {
  const said: unknown = await answer.json().catch(() => null);
  const error = typeof said === "object" && said !== null ? (said as { error?: unknown }).error : null;
  return typeof error === "string" ? error : `The front-end answers ${answer.status}.`;
}
