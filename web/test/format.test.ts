import assert from "node:assert/strict";
import { test } from "node:test";
import {
  amount,
  clock,
  correlation,
  milliseconds,
  percent,
  plural,
  printable,
  probability,
  range,
  seconds,
} from "../src/format";

test("numbers have about three digits", () => {
  const cases: [string, string][] = [
    [amount(12345.6), "12,346"],
    [amount(123.4), "123"],
    [amount(12.34), "12.3"],
    [amount(0.123), "0.12"],
    [milliseconds(0.04), "40 µs"],
    [milliseconds(4.26), "4.3 ms"],
    [milliseconds(880.4), "880 ms"],
    [milliseconds(12_300), "12.3 s"],
    [range(2.1, 9), "2.1 to 9 ms"],
    [range(0.04, 9), "40 µs to 9 ms"],
    [range(17.2, 4100), "17 ms to 4.1 s"],
    [range(4, 4.01), "4 ms"],
    [range(90_000, 150_000), "90 s to 2 min 30 s"],
    [seconds(150), "2 min 30 s"],
    [seconds(7260), "2 h 1 min"],
    [seconds(600), "10 min"],
    [percent(0.0623), "6.2 %"],
    [percent(0.625), "63 %"],
    [correlation(-0.034), "−0.03"],
    [probability(3e-9), "<0.0001"],
    [probability(0.004), "0.0040"],
    [probability(0.42), "0.42"],
    [plural(1, "class", "classes"), "1 class"],
    [plural(2, "request"), "2 requests"],
  ];
  for (const [found, wanted] of cases) assert.equal(found, wanted);
});

test("what is not known is a dash", () => {
  for (const write of [amount, milliseconds, seconds, percent, correlation, probability]) {
    assert.equal(write(null), "–");
  }
});

test("times are as fine as they need to be", () => {
  const noon = new Date(2026, 0, 2, 12, 3, 4, 560).getTime() / 1000;
  assert.equal(clock(noon, 0.1), "12:03:04.5");
  assert.equal(clock(noon, 1), "12:03:04");
  assert.equal(clock(noon, 60), "12:03");
  assert.equal(clock(noon, 3600, 200_000), "2026-01-02 12:03");
});

test("names cannot deceive the eye", () => {
  assert.equal(printable("GET /a\u0000\n\u202eb\u2066c\u200bd"), "GET /a\ufffd\ufffd\ufffdb\ufffdc\ufffdd");
  assert.equal(printable("GET /größe/漢字?<b>"), "GET /größe/漢字?<b>");
});
