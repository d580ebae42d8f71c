// What is asked and when. Nothing is asked while the page is not seen.
//
//   /api/overview   each second
//   /api/history    whole once, then its newest steps each ten seconds
//   /api/events     when the overview has a newer one
//   /api/moves      each five seconds, once a minute where there are none
//   /api/throttles  each ten seconds
//   /api/access     once, and after each new token

import { type Client, NotThere } from "./client";
import { askAfter, merged, parseEvents } from "./events";
import { NEWEST, STEPS, STEP_S, append, parseHistory, whole } from "./history";
import { type Moves, parseMoves } from "./moves";
import { parseOverview } from "./overview";
import type { State } from "./state";
import { parseThrottles } from "./why";

const MOVES_S = 5;
const MOVES_REST_S = 60;
const REST_S = 60;

/** What the page may say besides. */
export interface Access {
  isKnown: boolean;
  mayAct: boolean;
}

export class Asking {
  /** Seconds, by the page's clock, from which on each is asked for again. */
  private next = { history: 0, moves: 0, throttles: 0, access: 0 };
  hasEvents = true;
  hasHistory = true;
  moves: Moves | null = null;
  /** Why there are no moves to show. */
  movesNote: { text: string; kind: "soft" | "bad" } | null = null;

  constructor(
    private readonly client: Client,
    private readonly state: State,
  ) {}

  /** All is asked anew: there is another token, or another process. */
  reset(): void {
    this.next = { history: 0, moves: 0, throttles: 0, access: 0 };
    this.state.history = null;
  }

  async overview(): Promise<void> {
    this.state.seen = parseOverview(await this.client.get("/api/overview"));
  }

  /** What comes less often than the overview; what fails is asked for again. */
  async others(): Promise<void> {
    const now = performance.now() / 1000;
    await Promise.all([
      this.access(now),
      this.history(now),
      this.events(),
      this.throttles(now),
      this.askMoves(now),
    ]);
  }

  private async access(now: number): Promise<void> {
    if (now < this.next.access) return;
    this.next.access = Infinity;
    try {
      const answer = await this.client.get("/api/access");
      this.state.mayAct = (answer as { may_act?: unknown }).may_act === true;
    } catch (error) {
      // One that is older than this question takes orders from all that may ask.
      this.state.mayAct = error instanceof NotThere;
      if (!(error instanceof NotThere)) this.next.access = now + STEP_S;
    }
  }

  private async history(now: number): Promise<void> {
    if (now < this.next.history) return;
    try {
      const { history } = this.state;
      const last = history === null ? STEPS : NEWEST;
      const read = parseHistory(await this.client.get(`/api/history?step=${STEP_S}&last=${last}`));
      this.hasHistory = true;
      // A process that has just begun knows of nothing yet.
      if (read.sites.length === 0) return;
      const joined = history === null ? whole(read) : append(history, read);
      if (joined) this.state.takeHistory(joined);
      else this.state.history = null;
      this.next.history = joined ? now + STEP_S : 0;
    } catch (error) {
      this.hasHistory = !(error instanceof NotThere);
      this.next.history = now + REST_S;
    }
  }

  private async events(): Promise<void> {
    const { state } = this;
    const after = askAfter(state.events, state.seen?.newest_event ?? 0);
    if (after === null || !this.hasEvents) return;
    const ask = async (from: number) => parseEvents(await this.client.get(`/api/events?after=${from}`));
    try {
      let read = await ask(after);
      if (read.since !== state.eventsSince) {
        // Another process counts from one: what was is over.
        state.events = [];
        state.eventsSince = read.since;
        if (after > 0) read = await ask(0);
      }
      state.events = merged(state.events, read);
    } catch (error) {
      this.hasEvents = !(error instanceof NotThere);
    }
  }

  private async throttles(now: number): Promise<void> {
    if (now < this.next.throttles) return;
    this.next.throttles = now + STEP_S;
    this.state.throttles = await this.client
      .get("/api/throttles")
      .then(parseThrottles)
      .catch(() => []);
  }

  private async askMoves(now: number): Promise<void> {
    if (now < this.next.moves) return;
    this.next.moves = now + MOVES_S;
    const { seen } = this.state;
    try {
      const answer = await this.client.get("/api/moves");
      this.moves = parseMoves(answer, seen?.at_seconds ?? 0, seen?.uptime_seconds ?? 0);
      this.movesNote = null;
    } catch (error) {
      this.moves = null;
      const text = error instanceof Error ? error.message : String(error);
      const none = "No node moves between sites: [reconfigure] is off.";
      const isOff = error instanceof NotThere;
      this.movesNote = isOff
        ? { text: none, kind: "soft" }
        : { text: `Moves are not known: ${text}`, kind: "bad" };
      if (isOff) this.next.moves = now + MOVES_REST_S;
    }
  }

  /** Something was done: what may have changed by it is asked for at once. */
  hurry(): void {
    this.next.moves = this.next.throttles = 0;
  }
}
