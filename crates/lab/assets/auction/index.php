<?php
// The auction site: all its pages. One query per thing that a page shows.
//
// Beside its page an answer tells what the database spent on it (`x-auction-db-cpu-ns`): the CPU time
// that the connection's own backend process has used meanwhile, by the scheduler's account. That is
// for whoever compares; no page depends on it.

require __DIR__ . '/pages.php';

const ROUTES = [
    'GET /' => 'home',
    'GET /browse/categories' => 'browse_categories',
    'GET /browse/regions' => 'browse_regions',
    'GET /browse/category/{n}' => 'browse_category',
    'GET /search/category/{n}' => 'search_category',
    'GET /search/region/{n}' => 'search_region',
    'GET /search/all' => 'search_all',
    'GET /item/{n}' => 'view_item',
    'GET /item/{n}/bids' => 'view_bids',
    'GET /item/{n}/bid' => 'bid_form',
    'POST /item/{n}/bid' => 'bid',
    'GET /item/{n}/buy' => 'buy_form',
    'POST /item/{n}/buy' => 'buy',
    'GET /member/{n}' => 'view_member',
    'POST /member/{n}/comment' => 'comment',
    'GET /me/{n}' => 'about_me',
    'GET /sell' => 'sell_form',
    'POST /sell' => 'sell',
];

/** CPU time of the backend of this connection so far, nanoseconds. */
function backend_cpu(int $pid): int
{
    $account = @file_get_contents("/proc/$pid/schedstat");
    return $account === false ? 0 : (int) strtok($account, ' ');
}

/** A number of the query string, within bounds. */
function number(string $name, int $usual, int $most): int
{
    $value = filter_var($_GET[$name] ?? $usual, FILTER_VALIDATE_INT);
    return $value === false ? $usual : max(1, min($value, $most));
}

function fail(int $status, string $why): never
{
    http_response_code($status);
    header('Content-Type: text/plain');
    exit("$why\n");
}

/** The page's function and the number in its path. */
function route(string $method, string $path): array
{
    $number = 0;
    $pattern = preg_replace_callback('#/(\d{1,9})(?=/|$)#', function (array $found) use (&$number): string {
        $number = (int) $found[1];
        return '/{n}';
    }, $path, 1);
    return [ROUTES["$method $pattern"] ?? fail(404, 'there is no such page'), $number];
}

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
[$page, $number] = route($_SERVER['REQUEST_METHOD'], is_string($path) ? $path : '/');
$database = @pg_pconnect(getenv('AUCTION_DATABASE'));
if ($database === false) {
    fail(503, 'the database does not answer');
}
$backend = pg_get_pid($database);
$before = backend_cpu($backend);
$html = $page(new Auction($database), $number);
header('x-auction-db-cpu-ns: ' . (backend_cpu($backend) - $before));
header('Content-Type: text/html; charset=utf-8');
echo $html;
