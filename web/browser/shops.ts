// What runs before the database in each scene of the page of culprits.

import type { Confidence, Pair, Resource } from "../src/report";

/** A class of requests and what it costs at the database. */
export interface Model {
  name: string;
  rate: number;
  typicalMs: number;
  costMs: number;
  confidence?: Confidence;
  more?: Partial<Pair>;
}

export interface Shop {
  classes: Model[];
  /** CPUs that no request uses. */
  background: number;
  saturated: number;
  basis?: Resource["basis"];
  notes?: string[];
}

const CALM: Model[] = [
  { name: "GET /item/{n}", rate: 210, typicalMs: 12, costMs: 0.9 },
  { name: "GET /category/{n}", rate: 65, typicalMs: 20, costMs: 1.6 },
  { name: "GET /", rate: 140, typicalMs: 8, costMs: 0.4 },
  { name: "POST /cart", rate: 12, typicalMs: 60, costMs: 5.2 },
  { name: "GET /cart/summary", rate: 12, typicalMs: 64, costMs: 4.9 },
  { name: "GET /user/{n}", rate: 40, typicalMs: 15, costMs: 0.9 },
  { name: "GET /api/v1/price/{uuid}", rate: 95, typicalMs: 9, costMs: 0.4 },
  { name: "POST /login", rate: 6, typicalMs: 90, costMs: 1.2 },
  { name: "GET /feed.xml", rate: 9, typicalMs: 40, costMs: 2.5 },
  { name: "GET /static/css/*.css", rate: 320, typicalMs: 2, costMs: 0 },
  { name: "GET /static/img/*.png", rate: 410, typicalMs: 3, costMs: 0 },
];

const SEARCH: Model = { name: "GET /search?q", rate: 24, typicalMs: 110, costMs: 107, confidence: "strong" };
const REPORT: Model = {
  ...{ name: "GET /report/{n}", rate: 1.5, typicalMs: 500, costMs: 230, confidence: "likely" },
  more: { cost_bounded: true, cost_low_ms: 190, cost_high_ms: 410 },
};

/** Searches take two thirds of a database that is full. */
export const FOUND: Shop = { classes: [SEARCH, REPORT, ...CALM], background: 0.25, saturated: 0.34 };

/** The database is full all the time: what is slow may be merely that. */
export const DOUBTFUL: Shop = {
  classes: [
    {
      ...{ name: "GET /export/*.csv", rate: 2.4, typicalMs: 900, costMs: 700, confidence: "from occupancy" },
      more: {
        cost_high_ms: 760,
        cost_low_ms: 0,
        cost_bounded: true,
        cost_error: null,
        t: null,
        z: null,
        rm: null,
      },
    },
    {
      ...{ name: "GET /search?q", rate: 9, typicalMs: 110, costMs: 38 },
      more: { cost_bounded: true, cost_low_ms: 31, cost_high_ms: 120 },
    },
    ...CALM,
  ],
  background: 1.4,
  saturated: 0.92,
};

/** Two classes that always come together. */
export const TOGETHER: Shop = {
  classes: [
    {
      ...{ name: "POST /cart", rate: 12, typicalMs: 60, costMs: 40, confidence: "ambiguous" },
      more: { ambiguous_with: ["GET /cart/summary"] },
    },
    {
      ...{ name: "GET /cart/summary", rate: 12, typicalMs: 64, costMs: 40, confidence: "ambiguous" },
      more: { ambiguous_with: ["POST /cart"] },
    },
    ...CALM.filter(({ name }) => !name.includes("cart")),
  ],
  background: 0.9,
  saturated: 0.02,
};

/** All is as on any day. */
export const NONE: Shop = { classes: CALM, background: 0.35, saturated: 0, notes: [] };

/** Many cheap requests fill the database: no class is to blame. */
export const OVERLOAD: Shop = {
  classes: CALM.map((it) => ({ ...it, rate: it.rate * 6 })),
  background: 0.6,
  saturated: 0.88,
  notes: [],
};
