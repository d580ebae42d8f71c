<?php
// The test server's /work in PHP: the same parameters, limits and sentences, without `file`.
// CPU time is that of this process, user and system, since the script began.

const TIMES = ['us' => 1, 'ms' => 1000, 's' => 1000000, 'm' => 60000000];
const SIZES = ['B' => 1, 'KiB' => 1024, 'MiB' => 1048576, 'GiB' => 1073741824];
const LIMITS = ['cpu' => 60000000, 'sleep' => 60000000, 'mem' => 67108864, 'bytes' => 67108864, 'fds' => 4096];

function refuse(string $why): never
{
    http_response_code(400);
    exit("$why\n");
}

function number(string $name, string $value): int
{
    $units = match ($name) {
        'cpu', 'sleep' => TIMES,
        'mem' => SIZES,
        'bytes' => SIZES + ['' => 1],
        'fds' => ['' => 1],
        'file' => refuse('`file` needs a cache that all processes share: there is none here'),
        default => refuse("unknown parameter `$name`: cpu, mem, sleep, bytes and fds are known"),
    };
    if (!preg_match('/^(\d{1,15})([A-Za-z]*)$/', $value, $parts) || !isset($units[$parts[2]])) {
        refuse("`$name=$value`: a whole number and a unit are needed");
    }
    $number = $parts[1] * $units[$parts[2]];
    return $number <= LIMITS[$name] ? $number : refuse("`$name=$value` is more than " . LIMITS[$name]);
}

function cpu_us(): int
{
    $now = getrusage();
    return ($now['ru_utime.tv_sec'] + $now['ru_stime.tv_sec']) * 1000000
        + $now['ru_utime.tv_usec'] + $now['ru_stime.tv_usec'];
}

function burn(int $until): void
{
    while (cpu_us() < $until) {
        for ($i = 0; $i < 50; $i++) {
            mt_rand();
        }
    }
}

$begin = cpu_us();
$arrived = hrtime(true);
$work = ['cpu' => 0, 'sleep' => 0, 'mem' => 0, 'bytes' => 0, 'fds' => 0];
foreach ($_GET as $name => $value) {
    $work[$name] = number((string) $name, is_string($value) ? $value : '');
}
$memory = str_repeat('x', $work['mem']);
$files = [];
for ($i = 0; $i < $work['fds']; $i++) {
    $file = @fopen('/dev/null', 'r');
    if ($file === false) {
        http_response_code(503);
        exit("no file descriptor is free\n");
    }
    $files[] = $file;
}
if ($work['sleep'] > 0) {
    burn($begin + intdiv($work['cpu'], 2));
    usleep($work['sleep']);
}
burn($begin + $work['cpu']);
header('Content-Type: text/plain');
header('Content-Length: ' . $work['bytes']);
header('x-lab-took-us: ' . intdiv(hrtime(true) - $arrived, 1000));
echo str_repeat('x', $work['bytes']);
