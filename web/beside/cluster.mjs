// Three nodes with nginx and PHP, each in a network namespace and with a quarter of a CPU, and what befalls them.
//
// Linux, root, control groups of version 1. Everything is named `beside…` and taken away at the end.
import { spawn, execFile } from "node:child_process";
import { mkdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);
const GROUPS = ["cpu", "cpuacct"].map((kind) => `/sys/fs/cgroup/${kind}/beside`);
const [LIMITS, USE] = GROUPS;
const QUOTA_US = [2500, 10_000];
const WORKERS = 32;
/** CPU time of a request, by its path. */
const PAGE = `<?php
function used() { $it = getrusage(); return ($it['ru_utime.tv_sec'] + $it['ru_stime.tv_sec']) * 1e3 + ($it['ru_utime.tv_usec'] + $it['ru_stime.tv_usec']) / 1e3; }
$end = used() + (['/report' => 60, '/health' => 0][strtok($_SERVER['REQUEST_URI'], '?')] ?? 4);
while (used() < $end);
echo "done\\n";
`;

export const NODES = [1, 2, 3].map((number) => ({ name: `n${number}`, address: `10.77.0.${10 + number}` }));
export const HOST = "10.77.0.1";

const children = new Set();

/** Starts a program; what it says goes into `log`. */
export function start(log, command, args, options = {}) {
  const child = spawn("sh", ["-c", 'exec "$0" "$@" >>"$LOG" 2>&1', command, ...args], {
    detached: true,
    stdio: "ignore",
    ...options,
    env: { ...process.env, LOG: log },
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const it = { child, ended, stop: () => stop(it) };
  children.add(it);
  return it;
}

async function stop(it, signal = "SIGTERM") {
  children.delete(it);
  if (it.child.exitCode === null && it.child.signalCode === null) process.kill(-it.child.pid, signal);
  await it.ended;
}

/** A program inside of a node: its namespace and its quota. */
function inside(name, log, command, args) {
  const groups = GROUPS.map((group) => `echo $$ > ${group}/${name}/cgroup.procs`).join("; ");
  const enter = `${groups}; exec nsenter --net=/run/netns/beside-${name} "$0" "$@"`;
  return start(log, "sh", ["-c", enter, command, ...args]);
}

async function cable({ name, address }) {
  const space = `beside-${name}`;
  const commands = [
    ["netns", "add", space],
    ["link", "add", `bs-${name}`, "type", "veth", "peer", "name", "eth0", "netns", space],
    ["link", "set", `bs-${name}`, "master", "beside0", "up"],
    ["-n", space, "addr", "add", `${address}/24`, "dev", "eth0"],
    ["-n", space, "link", "set", "eth0", "up"],
    ["-n", space, "link", "set", "lo", "up"],
  ];
  for (const args of commands) await run("ip", args);
  for (const group of GROUPS) await mkdir(join(group, name), { recursive: true });
  await writeFile(join(LIMITS, name, "cpu.cfs_period_us"), `${QUOTA_US[1]}`);
  await writeFile(join(LIMITS, name, "cpu.cfs_quota_us"), `${QUOTA_US[0]}`);
}

/** nginx and PHP of a node; as long as they run, it serves. */
export async function serve(folder, { name, address }) {
  const here = join(folder, name);
  await mkdir(here, { recursive: true });
  await writeFile(join(here, "page.php"), PAGE);
  await writeFile(
    join(here, "php.conf"),
    `[global]\ndaemonize = no\nerror_log = ${here}/php.log\n[web]\nlisten = ${here}/php.sock\nuser = root\ngroup = root\npm = static\npm.max_children = ${WORKERS}\n`,
  );
  await writeFile(
    join(here, "nginx.conf"),
    `daemon off; worker_processes 1; pid ${here}/nginx.pid; user root; error_log stderr warn;
events { worker_connections 1000; }
http { access_log off; client_body_temp_path ${here}/t1; proxy_temp_path ${here}/t2; fastcgi_temp_path ${here}/t3; uwsgi_temp_path ${here}/t4; scgi_temp_path ${here}/t5;
  server { listen ${address}:8080; location / { fastcgi_pass unix:${here}/php.sock; fastcgi_param SCRIPT_FILENAME ${here}/page.php; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; } } }\n`,
  );
  const php = inside(name, join(here, "php.out"), "php-fpm8.2", [
    "-n",
    "-R",
    "-F",
    "-y",
    join(here, "php.conf"),
    "-p",
    here,
  ]);
  const nginx = inside(name, join(here, "nginx.out"), "nginx", [
    "-e",
    "stderr",
    "-c",
    join(here, "nginx.conf"),
  ]);
  return async () => {
    await Promise.all([stop(nginx, "SIGKILL"), stop(php, "SIGKILL")]);
  };
}

/** Another program of the node that wants its CPU. */
export function hog(folder, { name }) {
  return inside(name, join(folder, name, "hog.out"), "sh", [
    "-c",
    "for i in 1 2 3 4; do while :; do :; done & done; wait",
  ]);
}

/** The agent of a node. Like a host's, it is not kept waiting by the quota. */
export function agent(folder, program, { name, address }) {
  const args = [`--net=/run/netns/beside-${name}`, program, "agent", "--listen", `${address}:9901`];
  args.push("--scope", `/beside/${name}`, "--key-file", join(folder, `${name}.key`));
  return start(join(folder, name, "agent.out"), "nsenter", args);
}

/** What node_exporter would say of a host of the node's size: it knows no quotas, so it reads this file. */
export async function exported(folder, { name }) {
  const use =
    Number(await readFile(join(USE, name, "cpuacct.usage"), "utf8")) / 1e9 / (QUOTA_US[0] / QUOTA_US[1]);
  const text = `# TYPE node_cpu_seconds_total counter\nnode_cpu_seconds_total{cpu="0",mode="user"} ${use}\n`;
  await mkdir(join(folder, name, "text"), { recursive: true });
  await writeFile(join(folder, name, "text", "cpu.prom"), text);
}

export async function up(folder) {
  await down();
  await mkdir(folder, { recursive: true });
  await run("ip", ["link", "add", "beside0", "type", "bridge"]);
  await run("ip", ["addr", "add", `${HOST}/24`, "dev", "beside0"]);
  await run("ip", ["link", "set", "beside0", "up"]);
  for (const node of NODES) await cable(node);
}

/** Removes a control group once the last of its processes, which were killed, is gone. */
async function emptied(group) {
  while ((await readFile(join(group, "cgroup.procs"), "utf8")) !== "") await immediate();
  await rmdir(group);
}

export async function down() {
  await Promise.all([...children].map((it) => stop(it, "SIGKILL")));
  for (const { name } of NODES) {
    if (existsSync(`/run/netns/beside-${name}`)) await run("ip", ["netns", "del", `beside-${name}`]);
  }
  const groups = GROUPS.flatMap((group) => [...NODES.map(({ name }) => join(group, name)), group]);
  for (const group of groups.filter((it) => existsSync(it))) await emptied(group);
  if (existsSync("/sys/class/net/beside0")) await run("ip", ["link", "del", "beside0"]);
}
